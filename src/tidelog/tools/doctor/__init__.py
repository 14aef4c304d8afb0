"""`tidelog doctor`: mistakes in a configuration, a machine, data directories and a cluster, each
with its cure.

    finding.py          what a check says
    machine.py          what the machine has; a test puts its own facts in its place
    configuration.py    listeners, replication, TLS, ZooKeeper
    directories.py      log.dirs: room, owner, lock, identity, clean stop, clock
    cluster.py          brokers that answer: reachable, alike, replicated

A check yields findings. One that cannot look says so with a finding of the level UNCHECKED: silence
means that a check has looked and found nothing.
"""
