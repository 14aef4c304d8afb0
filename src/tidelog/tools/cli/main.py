"""The `tidelog` command: finds the subcommand, runs it, and turns its failure into one line.

A subcommand is a module with `add_arguments(parser)` and `run(arguments) -> int`; only the one
asked for is imported. `run` raises argparse.ArgumentError for arguments that do not go together.
Exit codes: 0 done (for `serve`: stopped cleanly), 1 it could not start or failed, 2 wrong usage,
130 interrupted before it had begun. A command whose reader has gone (`| head`) ends silently with
0.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from tidelog import __version__
from tidelog.errors import StartupError

# By module; a command has dashes where its module has underscores.
COMMANDS: Final = {
    "serve": "run a broker in the foreground",
    "dev": "run a cluster on this machine: ZooKeeper and some brokers",
    "zookeeper": "run a ZooKeeper server for development, from pyspark's jars",
    "groups": "list, describe, reset and delete consumer groups",
    "transactions": "list, describe and abort transactions, find those that hang",
    "pipeline": "make, check and run data pipelines on Spark",
    "dump_log": "show what is in segment, index and snapshot files",
    "verify_log": "check a data directory and say what recovery would do",
    "repair_log": "do what recovery would do, keeping a copy of what it changes",
    "demo": "see it all work: a broker, a shop's events, a pipeline, a check",
}


def main(argv: Sequence[str] | None = None) -> int:
    arguments = make_parser(sys.argv[1:] if argv is None else argv).parse_args(argv)
    try:
        code = int(import_module(command_module(arguments.command)).run(arguments))
        sys.stdout.flush()
        return code
    except argparse.ArgumentError as error:
        parser: argparse.ArgumentParser = arguments.parser
        parser.error(str(error))
    except BrokenPipeError:
        # What is still buffered would fail again when the interpreter exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except StartupError as error:
        return fail(str(error))
    except OSError as error:
        return fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        import logging

        logging.getLogger("tidelog").critical("a bug in tidelog", exc_info=error)
        return fail(f"a bug in tidelog: {type(error).__name__}: {error}")


class _Parser(argparse.ArgumentParser):
    """Its subparsers are of its kind: each refuses what it does not know with its own usage."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown


def make_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(prog="tidelog", description="A commit log that Kafka clients use.")
    parser.add_argument("--version", action="version", version=f"tidelog {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for module, summary in COMMANDS.items():
        name = module.replace("_", "-")
        command = commands.add_parser(name, help=summary, description=summary)
        command.set_defaults(parser=command)
        if name in argv:
            import_module(command_module(name)).add_arguments(command)
    return parser


def command_module(command: str) -> str:
    return f"tidelog.tools.cli.{command.replace('-', '_')}"


def fail(message: str) -> int:
    print(f"tidelog: error: {' '.join(message.split())}", file=sys.stderr)
    return 1
