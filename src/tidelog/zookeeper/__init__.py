"""ZooKeeper's protocol, served from the embedded metadata store: `tidelog zookeeper`.

One process for one machine. See docs/zookeeper.md for what it does and does not do.
"""
