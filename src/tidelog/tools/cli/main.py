"""The `tidelog` command: finds the subcommand, runs it, and turns its failure into one line.

Exit codes: 0 done (for `serve`: stopped cleanly), 1 it could not start or failed, 2 wrong usage,
130 interrupted. A command whose reader has gone (`| head`) ends silently with 0. Wrong usage,
--help and --version end by SystemExit.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

import click

from tidelog import __version__
from tidelog.errors import StartupError
from tidelog.tools.cli.frame import HELP_WIDTH_MAX, CommandFailed, Lazy, LazyGroup, usage_lines
from tidelog.tools.cli.session import Session, global_options

PROGRAM: Final = "tidelog"
COMPLETE_VARIABLE: Final = "_TIDELOG_COMPLETE"
HERE: Final = "tidelog.tools.cli"

SECTIONS: Final = {
    "Brokers": {
        "serve": Lazy("serve", "run a broker in the foreground"),
        "dev": Lazy("dev", "run a cluster on this machine"),
        "zookeeper": Lazy("zookeeper", "serve ZooKeeper's protocol, for development and tests"),
        "doctor": Lazy("doctor", "find mistakes of settings, machine, directories and cluster"),
        "certs": Lazy("certs", "make a CA and certificates for development"),
        "demo": Lazy("demo", "see it all work: a broker, a shop's events, a pipeline, a check"),
    },
    "Topics and records": {
        "topic": Lazy("topic", "list, create, describe, alter, delete and trim topics"),
        "produce": Lazy("produce", "write records from lines, JSON lines or files"),
        "consume": Lazy("consume", "print records: ranges, filters, formats, following"),
        "perf": Lazy("perf", "measure producing, consuming and latency"),
        "pipeline": Lazy("pipeline", "make, check and run data pipelines on Spark"),
    },
    "Clusters": {
        "cluster": Lazy("cluster", "brokers, health, log directories and features"),
        "group": Lazy("group", "list, describe, reset and delete consumer groups"),
        "user": Lazy("user", "list, make and delete users that log in with SCRAM"),
        "token": Lazy("token", "list, make, renew and end delegation tokens"),
        "config": Lazy("config", "settings of topics, brokers, groups and clients"),
        "acl": Lazy("acl", "list, add and remove access control lists"),
        "txn": Lazy("transactions", "list, describe and abort transactions, find those that hang"),
        "reassign": Lazy("reassign", "move replicas between brokers"),
        "elect": Lazy("elect", "elect leaders of partitions"),
        "explain": Lazy("explain", "why a partition, group, transaction or record is as it is"),
        "console": Lazy("console", "see and steer a cluster in the browser"),
        "top": Lazy("top", "watch brokers, topics and groups: lag, rates and latencies"),
        "generate": Lazy("generate", "a dashboard for Grafana, a configuration for Prometheus"),
    },
    "Files of a broker": {
        "dump-log": Lazy("dump_log", "show what is in segment, index and snapshot files"),
        "verify-log": Lazy("verify_log", "check a data directory and say what recovery would do"),
        "repair-log": Lazy(
            "repair_log", "do what recovery would do, keeping a copy of what it changes"
        ),
    },
    "This command": {
        "context": Lazy("context", "name clusters and switch between them"),
        "completion": Lazy("completion", "completion for bash, zsh and fish"),
        "kafka": Lazy("kafka", "Kafka's own tools by their names and flags"),
    },
}
ALIASES: Final = {
    "acls": "acl",
    "groups": "group",
    "transactions": "txn",
    "topics": "topic",
    "configs": "config",
    "tokens": "token",
    "users": "user",
}


def root() -> LazyGroup:
    return LazyGroup(
        PROGRAM,
        package=HERE,
        sections=SECTIONS,
        aliases=ALIASES,
        params=[
            click.Option(
                ["--version"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_show_version,
                help="Show the version and exit.",
            ),
            *global_options(),
        ],
        help="A commit log that Kafka clients use, and tools for any Kafka.",
        epilog="`tidelog COMMAND --help` explains a command. Exit codes: 0 done, 1 failed, "
        "2 wrong usage, 130 interrupted.",
        context_settings={
            "help_option_names": ["-h", "--help"],
            "max_content_width": HELP_WIDTH_MAX,
        },
    )


def _show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        print(f"tidelog {__version__}")
        ctx.exit()


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    _open_closed_streams()
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # What is still buffered would fail again when the interpreter exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (CommandFailed, StartupError) as error:
        return fail(str(error))
    except OSError as error:
        return fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except (KeyboardInterrupt, click.Abort):
        return 130
    except Exception as error:
        import logging

        logging.getLogger("tidelog").critical("a bug in tidelog", exc_info=error)
        return fail(f"a bug in tidelog: {type(error).__name__}: {error}")


def _open_closed_streams() -> None:
    """Gives the null device to a standard stream that was closed before the start (`>&-`).

    Python has None in its place, and the first segment or socket would get its number: whatever
    writes to standard error by number would write into it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode))


def _run(arguments: list[str]) -> int:
    group = root()
    if COMPLETE_VARIABLE in os.environ:
        group._main_shell_completion({"obj": Session()}, PROGRAM, COMPLETE_VARIABLE)
    try:
        with group.make_context(PROGRAM, arguments, obj=Session()) as context:
            return int(group.invoke(context) or 0)
    except click.exceptions.Exit as ended:
        sys.stdout.flush()
        raise SystemExit(ended.exit_code) from None
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        raise SystemExit(2) from None
    except click.UsageError as error:
        _wrong_usage(error)
    except click.ClickException as error:
        raise CommandFailed(error.format_message()) from error


def _wrong_usage(error: click.UsageError) -> NoReturn:
    for line in usage_lines(error, PROGRAM):
        print(line, file=sys.stderr)
    raise SystemExit(2)


def fail(message: str) -> int:
    from tidelog.tools.cli.output import styled

    text = f"tidelog: error: {' '.join(message.split())}"
    print(styled(text, "bad", sys.stderr), file=sys.stderr)
    return 1
