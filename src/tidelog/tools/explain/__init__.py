"""Why things are as they are: facts and events in, findings and a timeline out.

partition, group, transaction and record   one question each; pure
explanation                                what they answer with
events                                     events of brokers, read from lines and put in order
event_sources                              where lines come from: /events of brokers, log files
cluster_facts                              what the brokers say now, over the Kafka protocol
fetched_batch                              the batch that holds an offset, read from its leader
"""
