"""What feeds Spark, without Spark: one task of a read, `python -m bench.spark.reader files 0 ...`.

Prints "ready" when everything is imported and has run once, waits for a line, reads its share of
the topic and prints how many rows that were.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from tidelog.spark.executor import process_assembler, read_range
from tidelog.spark.log_planning import plan_slices
from tidelog.spark.log_reader import read_slice
from tidelog.spark.offset_ranges import OffsetRange
from tidelog.spark.options import source_options
from tidelog.types import TopicPartition

TASKS = 2


def from_files(data: str, topic: str, task: int) -> Iterator[Any]:
    tasks = plan_slices(source_options({"path": data, "subscribe": topic}))
    assert len(tasks) % TASKS == 0, len(tasks)
    for slices in tasks[task::TASKS]:
        for wanted in slices:
            yield from read_slice(wanted, process_assembler(False), check_crcs=True)


def from_broker(bootstrap: str, topic: str, task: int, rows: int) -> Iterator[Any]:
    options = source_options({"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
    wanted = OffsetRange(TopicPartition(topic, task), 0, rows // TASKS)
    return read_range(options, wanted, None)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("files", "broker"))
    parser.add_argument("task", type=int)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--rows", type=int, required=True)
    given = parser.parse_args()

    def read() -> int:
        if given.kind == "files":
            batches = from_files(given.data, given.topic, given.task)
        else:
            batches = from_broker(given.bootstrap, given.topic, given.task, given.rows)
        return sum(batch.num_rows for batch in batches)

    read()
    print("ready", flush=True)
    input()
    print(read(), flush=True)


if __name__ == "__main__":
    main()
