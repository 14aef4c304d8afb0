"""The broker: everything below it put together, and the APIs it serves.

    in Kafka                                   here
    KafkaApis                                  dispatcher, api_table, handlers/<API>
    Kafka (its main)                           process: loop, signals, exit code
    BrokerServer, KafkaServer                  server; cluster_server, cluster_member in a cluster
    BrokerLifecycleManager                     broker_lifecycle: registration, controlled shutdown
    FetchSessionCache, FetchSession            fetch_sessions; replication/follower_session
    ReplicaManager.becomeLeaderOrFollower      leadership_changes
    LogDirFailureHandler                       log_dir_failure_handler
    MetadataCache                              metadata_cache; metadata_answers, encoded
    DynamicBrokerConfig, ConfigAdminManager    dynamic_config, broker_config_checks,
                                               config_resource, broker_loggers
    ZkConfigManager                            config_changes, controller.announcements
    ClientQuotaManager and its kin             quotas/client_quotas; quotas/quota_limits
    AddPartitionsToTxnManager                  transactions
    AutoTopicCreationManager                   tidelog.controller.topics, auto_create
    KafkaScheduler                             housekeeping

Kafka has nothing like these: `record_threads` and `bulky_answers` keep long work off the event
loop, and `refused_sequences` remembers what a producer must send again before its next batches are
taken.
"""
