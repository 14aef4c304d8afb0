"""Connections: those of clients, and those of this broker to others. Knows frames, and no message.

    in Kafka                                   here
    SocketServer, Acceptor                     socket_server
    Processor, Selector                        processor: closes idle connections too
    KafkaChannel                               channel; its bytes go through tidelog.transport
    RequestChannel                             connection; request_channel, if there are threads
    RequestContext, Session                    session, tidelog.broker.context
    NetworkReceive, NetworkSend                framing
    ConnectionQuotas                           connection_quotas
    MemoryPool                                 memory_pool
    NetworkClient of a broker                  peer_connection, peer_directory

See docs/design/0004-network.md and 0017-request-edge.md for the decisions behind it.
"""
