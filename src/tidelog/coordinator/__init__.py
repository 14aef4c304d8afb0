"""State that lives in internal topics: groups, committed offsets, transactions.

    in Kafka                                   here
    CoordinatorRuntime                         runtime, loading, stored_record
    GroupCoordinatorService                    group/coordinator
    GroupCoordinatorShard                      group/shard
    GroupMetadataManager, classic part         group/classic/
    GroupMetadataManager, consumer part        group/consumer/
    OffsetMetadataManager                      group/offsets, group/coordinator
    TransactionCoordinator                     txn/coordinator
    TransactionStateManager                    txn/shard, txn/records, runtime
    TransactionMetadata                        txn/transaction, txn/states
    TransactionMarkerChannelManager            txn/markers, txn/retries

A coordinator is found by its internal topic in `registry`; a new kind joins with a row there.
"""
