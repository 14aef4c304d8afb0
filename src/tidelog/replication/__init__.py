"""Partitions as this broker hosts them: leaders, followers, and requests that wait for them.

    in Kafka                                   here
    ReplicaManager                             replica_manager
    Partition                                  partition, leadership (of the followers)
    Partition.maybeShrinkIsr, maybeExpandIsr   leadership
    AlterPartitionManager                      alter_partition_manager
    Replica                                    remote_replica
    ReplicaFetcherManager                      replica_fetcher_manager
    AbstractFetcherThread                      replica_fetcher
      processPartitionData, doTruncation       followed_partition
    DelayedFetch                               delayed_fetch, for followers follower_session
    DelayedProduce, DelayedDeleteRecords       delayed_answer
    ReplicationQuotaManager                    replication_throttle
    ReplicaAlterLogDirsThread                  replica_moves
    ReplicaSelector                            replica_selector

See docs/design/0015-replication.md for the decisions behind it.
"""
