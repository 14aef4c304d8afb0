"""Partition logs on disk, in Kafka's own files. See docs/on-disk-format.md for every byte.

    in Kafka                              here
    UnifiedLog, LocalLog                  partition_log: append, roll, truncate, flush
    UnifiedLog.read, .fetchOffset...      log_reader by offset, time_lookup by timestamp
    LogManager                            log_manager
    LogLoader                             log_loader
    LogValidator                          log_validator
    LogSegment                            segment/log_segment
    AbstractIndex, OffsetIndex, ...       segment/index_file, offset_index, time_index
    TransactionIndex                      segment/transaction_index
    ProducerStateManager, SnapshotFile    producer_state, producer_loading, producer_snapshots
    LeaderEpochFileCache                  leader_epoch_cache
    CheckpointFile, MetaProperties        directory/checkpoints, meta_properties
    LogDirFailureChannel                  directory/log_dir_failures, log_directories
    AlterReplicaLogDirs' future log       future_log
    LogCleaner (its threads)              cleaner/log_cleaner
    Cleaner, LogCleanerManager            cleaner/cleaner, cleaner/log_cleaner_manager

Kafka has nothing like these: `segment/segment_verification` checks old bytes when they are first
read, `append_run` lets batches of many clients share a write, `transaction_index_check` compares
old transaction indexes with their segments, and the walks (`segment/segment_walk`,
`truncation_walk`) move long reads to a thread.
"""
