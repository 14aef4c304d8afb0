"""Partitions as this broker hosts them: leaders, followers, and requests that wait for them.

    in Kafka                                   here
    ReplicaManager                             replica_manager
    Partition                                  partition, leadership (of the followers)
    Partition.maybeShrinkIsr, maybeExpandIsr   leadership.propose_to_remove_laggards, propose_to_add
    ReplicaManager.maybeShrinkIsr              replica_manager.maybe_shrink_isrs
    AlterPartitionManager                      alter_partition_manager
    Replica                                    remote_replica
    ReplicaFetcherManager                      fetchers
    AbstractFetcherThread                      fetcher, followed_partition (append, truncation)
    DelayedFetch                               delayed_fetch, for followers follower_session
    DelayedProduce, DelayedDeleteRecords       delayed_answer
    ReplicationQuotaManager                    replication_throttle
    ReplicaAlterLogDirsThread                  replica_moves
    ReplicaSelector                            replica_selector

See docs/design/0015-replication.md for the decisions behind it.
"""
