"""Broker settings in the environment: KAFKA_* as the official images of Apache Kafka map them, and
TIDELOG_*.

    KAFKA_LISTENERS                    listeners                     _ is a dot
    KAFKA_A__B                         a_b                           __ is an underscore
    KAFKA_A___B                        a-b                           ___ is a dash
    TIDELOG_LOG_DIRS                   log.dirs                      the same rules
    TIDELOG_LOOP_STALL_WARN_MS         tidelog.loop.stall.warn.ms    a key of tidelog's own

Names become lower case, but for a key that has capitals (zookeeper.clientCnxnSocket). A value is
taken as it is: a backslash in it is a backslash, whereas the images write a properties file, in
which it begins an escape.

Names that mean something else are passed over: those that the images leave out, those that the
start scripts of the images and of Kafka read, what Kubernetes sets for a service that is called
kafka or tidelog, and tidelog's own variables for builds, tests and the command line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from tidelog.config.broker import BROKER_TABLE, find_key

KAFKA: Final = "KAFKA_"
TIDELOG: Final = "TIDELOG_"

# Of the image's wrapper, and then of its start scripts and of those in Kafka's bin folder.
NOT_OF_KAFKAS_BROKER: Final = frozenset(
    f"{KAFKA}{name}"
    for name in (
        *("VERSION", "HEAP_OPTS", "LOG4J_OPTS", "OPTS", "JMX_OPTS", "JVM_PERFORMANCE_OPTS"),
        *("GC_LOG_OPTS", "LOG4J_ROOT_LOGLEVEL", "LOG4J_LOGGERS", "TOOLS_LOG4J_LOGLEVEL"),
        *("JMX_HOSTNAME", "JMX_PORT", "HOME", "DEBUG", "MODE", "CLUSTER_ID"),
        *("SSL_KEYSTORE_FILENAME", "SSL_KEYSTORE_CREDENTIALS", "SSL_KEY_CREDENTIALS"),
        *("SSL_TRUSTSTORE_FILENAME", "SSL_TRUSTSTORE_CREDENTIALS"),
    )
)
NOT_OF_TIDELOGS_BROKER: Final = re.compile(
    r"TIDELOG_((TEST|FIXTURE|LONG|KILL|FUZZ|REWRITE)_.*|COMPILE|CONTEXT|PURE|DAMAGES|CLEANINGS"
    r"|GROUP_EVENTS|GROUP_SEED|PRODUCER_KILLS|PRODUCER_CUTS)"
)
OF_KUBERNETES: Final = re.compile(
    r"(KAFKA|TIDELOG)_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)"
)

WITH_CAPITALS: Final = {
    key.name.lower(): key.name for key in BROKER_TABLE if key.name != key.name.lower()
}


class Variable(NamedTuple):
    name: str
    key: str
    value: str  # may be secret


def variables(environment: Mapping[str, str], *, with_kafka: bool) -> list[Variable]:
    """Those that set a key of the broker, TIDELOG_* last, because the last one holds."""
    prefixes = (KAFKA, TIDELOG) if with_kafka else (TIDELOG,)
    return [
        Variable(name, key_of(name, prefix), environment[name])
        for prefix in prefixes
        for name in sorted(environment)
        if name.startswith(prefix) and name != prefix and not means_something_else(name)
    ]


def means_something_else(name: str) -> bool:
    return (
        name in NOT_OF_KAFKAS_BROKER
        or NOT_OF_TIDELOGS_BROKER.fullmatch(name) is not None
        or OF_KUBERNETES.fullmatch(name) is not None
    )


def key_of(name: str, prefix: str) -> str:
    dotted = name.removeprefix(prefix).lower().replace("_", ".")
    key = dotted.replace("...", "-").replace("..", "_")
    key = WITH_CAPITALS.get(key, key)
    own = f"tidelog.{key}"
    return own if prefix == TIDELOG and find_key(key) is None and find_key(own) else key


def variable_of(key: str) -> str:
    """The name that sets a key."""
    if key.startswith("tidelog."):
        return TIDELOG + _spelled(key.removeprefix("tidelog."))
    return KAFKA + _spelled(key)


def _spelled(key: str) -> str:
    return key.replace("_", "__").replace("-", "___").replace(".", "_").upper()
