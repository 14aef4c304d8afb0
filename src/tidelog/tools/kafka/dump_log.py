"""kafka-dump-log: the same as `tidelog dump-log`, whose flags and lines are Kafka's."""

from __future__ import annotations

from tidelog.tools.cli.dump_log import command as dump_log
from tidelog.tools.kafka.frame import KafkaTool

command = KafkaTool(
    "kafka-dump-log", params=dump_log.params, callback=dump_log.callback, help=dump_log.help
)
