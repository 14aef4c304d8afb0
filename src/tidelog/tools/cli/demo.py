"""`tidelog demo`: a broker, a shop's events, a Spark pipeline and a check, in one command.

Prints the broker's ready line as soon as it serves, then tells the story. Without Java or pyspark
it says what is missing and serves the broker alone. Exit codes: 0 stopped, or with --once all
right; 1 the check failed or, with --once, could not be made.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="end after the check")
    parser.add_argument(
        "--data", type=Path, default=Path(".data"), metavar="DIR", help="everything goes here"
    )
    parser.add_argument("--port", type=int, default=9092, help="of the broker; 0: any free one")
    parser.add_argument("--orders", type=_count, default=40_000, help="how many orders are made")
    parser.add_argument(
        "--minutes", type=_count, default=120, help="how long the shop's morning is"
    )
    parser.add_argument(
        "--tick", type=float, default=0.3, metavar="SECONDS", help="how long its minutes take"
    )


def run(arguments: argparse.Namespace) -> int:
    from tidelog.demo.story import DemoSettings, run_demo

    settings = DemoSettings(
        directory=arguments.data,
        port=arguments.port,
        once=arguments.once,
        orders=arguments.orders,
        minutes=arguments.minutes,
        tick_s=arguments.tick,
    )
    return run_demo(settings)


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return count
