"""`tidelog kafka NAME ...`: Kafka's own tools by their names, flags, output and exit codes.

A name may be written as Kafka's scripts are: `kafka-topics`, `kafka-topics.sh` and `topics` are the
same. Wrong usage and failures exit with 1, as Kafka's tools do.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from tidelog.errors import StartupError
from tidelog.tools.cli.frame import CommandFailed, Lazy, LazyGroup
from tidelog.tools.kafka.frame import ToolFailed

HERE: Final = "tidelog.tools.kafka"
SECTIONS: Final = {
    "Topics and records": {
        "topics": Lazy("topics", "create, alter, list, describe and delete topics"),
        "console-producer": Lazy("console_producer", "write lines of standard input"),
        "console-consumer": Lazy("console_consumer", "print records"),
        "get-offsets": Lazy("get_offsets", "print offsets of partitions"),
        "delete-records": Lazy("delete_records", "delete records before an offset"),
    },
    "Clusters": {
        "consumer-groups": Lazy("consumer_groups", "list, describe and reset groups"),
        "configs": Lazy("configs", "show and change settings"),
        "acls": Lazy("acls", "list, add and remove access control lists"),
        "delegation-tokens": Lazy("delegation_tokens", "make, renew and end delegation tokens"),
        "leader-election": Lazy("leader_election", "elect leaders"),
        "reassign-partitions": Lazy("reassign_partitions", "move replicas"),
        "log-dirs": Lazy("log_dirs", "describe log directories"),
        "transactions": Lazy("transactions", "list, describe and abort transactions"),
        "dump-log": Lazy("dump_log", "show segment files"),
    },
    "Performance": {
        "producer-perf-test": Lazy("producer_perf_test", "measure a producer"),
        "consumer-perf-test": Lazy("consumer_perf_test", "measure a consumer"),
    },
}


class ToolBox(LazyGroup):
    """Finds a tool under each of its names. A tool's failure is its own line and exit code 1."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name.removeprefix("kafka-").removesuffix(".sh"))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (ToolFailed, CommandFailed, StartupError) as error:
            sys.stdout.flush()
            print(error, file=sys.stderr)
            return 1


command = ToolBox(
    "kafka",
    package=HERE,
    sections=SECTIONS,
    help="Kafka's own tools by their names, flags, output and exit codes, without Java.",
    epilog="`kafka-topics.sh --list ...` becomes `tidelog kafka topics --list ...`.",
)
