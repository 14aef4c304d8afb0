"""State that lives in internal topics: groups, committed offsets, transactions.

    in Kafka                                   here
    CoordinatorRuntime                         runtime, loading, stored_record
    GroupCoordinatorService                    group/coordinator
    GroupCoordinatorShard                      group/shard
    GroupMetadataManager, classic part         group/classic/
      its rebalances and session timeouts      group/classic/rebalance
    GroupMetadataManager, consumer part        group/consumer/
      CurrentAssignmentBuilder                 group/consumer/reconciliation
      convertToConsumerGroup and back          group/consumer/group_conversion
      regular expressions (RE2/J)              re2
    OffsetMetadataManager                      group/offsets, group/coordinator
      cleanupExpiredOffsets                    group/offset_removal
    TransactionCoordinator                     txn/coordinator
      handleInitProducerId                     txn/beginning
      endTransaction                           txn/ending
      abortTimedOutTransactions                txn/coordinator
    TransactionStateManager                    txn/shard, txn/records, runtime
    TransactionMetadata                        txn/transaction, txn/states
    TransactionMarkerChannelManager            txn/markers, txn/retries
    AddPartitionsToTxnManager                  txn/admission, tidelog.broker.transactions

A coordinator is found by its internal topic in `registry`. A new kind joins where
`broker/broker.py` makes the registry.
"""
