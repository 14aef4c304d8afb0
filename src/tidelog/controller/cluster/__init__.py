"""The controller of a cluster over ZooKeeper: pure decisions, then one write, then requests.

    in Kafka                                   here
    KafkaController                            kafka_controller: who is elected, who resigns
    onControllerFailover and all after it      active_controller, also auto leader rebalance
    KafkaController's API methods              controller_apis, cluster_topics
    ControllerEventManager                     controller_event_manager
    ControllerContext                          controller_context; decision_draft
    ControllerChannelManager                   controller_channel_manager
    ControllerBrokerRequestBatch               controller_broker_request_batch
    PartitionStateMachine                      partition_state_machine, also preferred leaders
    Election, ...ElectionAlgorithms            election
    ReplicaStateMachine                        replica_state_machine
    TopicDeletionManager                       topic_deletion
    onBrokerStartup, onBrokerFailure           broker_changes
    onPartitionReassignment                    partition_reassignment
    processAlterPartition                      alter_partition
    KafkaZkClient, as far as it reads          cluster_reader, settings_reader, controller_store

See docs/design/0014-controller.md for the decisions behind it.
"""
