"""`tidelog produce`, `consume` and `perf` against a broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.command_line import User
from tests.support.eventually import eventually
from tests.support.raw_batch import batch
from tests.support.raw_client import RawClient, create_topic, produce
from tidelog.client.blocking.consumer import Consumer

PER_PARTITION = 10
HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000


@pytest.fixture
def user(
    bootstrap: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> User:
    return User(bootstrap, capsys, monkeypatch)


@pytest.fixture
def empty(bootstrap: str, topic_name: str) -> str:
    """A topic of one partition."""
    with RawClient(bootstrap) as client:
        create_topic(client, topic_name, 1)
    return topic_name


@pytest.fixture
def topic(bootstrap: str, topic_name: str) -> str:
    """Two partitions; values are 0.0 to 0.9 and 1.0 to 1.9, an hour apart."""
    with RawClient(bootstrap) as client:
        create_topic(client, topic_name, 2)
        for partition in range(2):
            for number in range(PER_PARTITION):
                value = f"{partition}.{number}".encode()
                records = batch(value, base_timestamp=NOW_MS + number * HOUR_MS)
                produce(client, topic_name, records, partition)
    return topic_name


def values(user: User, topic: str, *arguments: str) -> list[str]:
    return sorted(user.lines("consume", topic, *arguments))


def everything(partition: int, first: int = 0, last: int = PER_PARTITION) -> list[str]:
    return [f"{partition}.{number}" for number in range(first, last)]


# Records there and back


def test_lines_go_in_and_come_out(user: User, empty: str) -> None:
    user.types("produce", empty, stdin="one\ntwo\n\nfour")
    assert user.lines("consume", empty, "-e") == ["one", "two", "", "four"]


def test_keys_headers_nulls_and_timestamps_are_kept(user: User, empty: str) -> None:
    options = ("-K", ":", "-H", "a=1", "-H", "b=", "-Z", "NULL", "--timestamp", "5")
    user.types("produce", empty, *options, stdin="k:v\nalone\nk:NULL\n")
    shown = user.lines("consume", empty, "-e", "-Z", "-", "-f", r"%o|%k|%s|%h|%T|%K|%S\n")
    assert shown == ["0|k|v|a=1,b=|5|1|1", "1|-|alone|a=1,b=|5|-1|5", "2|k|-|a=1,b=|5|1|-1"]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_written_and_read(user: User, empty: str, codec: str) -> None:
    lines = [f"line {number}" for number in range(500)]
    user.types("produce", empty, "-z", codec, stdin="\n".join(lines))
    assert user.lines("consume", empty, "-e") == lines


def test_json_lines_copy_a_topic(user: User, empty: str, topic_name: str) -> None:
    user.types("produce", empty, "-p", "0", "--json", stdin='{"value": {"base64": "AP8="}}\n')
    dumped = user.types("consume", empty, "-e", "-o", "jsonl")
    copy = f"{topic_name}-copy"
    user.types("topic", "create", copy, "-p", "1")
    user.types("produce", copy, "--json", stdin=dumped)
    again = user.types("consume", copy, "-e", "-o", "jsonl")
    assert again == dumped.replace(f'"topic":"{empty}"', f'"topic":"{copy}"')


def test_deliveries_are_told_as_json(user: User, empty: str) -> None:
    printed = user.types("-o", "jsonl", "produce", empty, stdin="a\nb\n")
    assert [json.loads(line)["offset"] for line in printed.splitlines()] == [0, 1]


def test_files_are_read_by_line_or_whole(user: User, empty: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"{name}1\n{name}2\n")
    names = [str(tmp_path / name) for name in ("a", "b")]
    user.types("produce", empty, *names)
    user.types("produce", empty, "--whole", *names)
    assert user.lines("consume", empty, "-e", "-f", "%s;") == [
        "a1;a2;b1;b2;a1",
        "a2",
        ";b1",
        "b2",
        ";",
    ]


def test_a_dry_run_prints_what_would_be_written(user: User, empty: str) -> None:
    printed = user.types("produce", empty, "-k", "me", "--dry-run", stdin="v\n")
    assert json.loads(printed)["key"] == "me"
    assert user.types("consume", empty, "-e") == ""


def test_a_record_that_is_refused_is_counted(user: User, empty: str) -> None:
    user.types("config", "set", "topic", empty, "cleanup.policy=compact")
    user.types("produce", empty, "-K", ":", stdin="k:v\n")
    user.types("produce", empty, stdin="no key\n", code=1)
    assert "record 1 was not written" in user.errors
    assert user.errors.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "stdin", "why"),
    [
        (["--json"], "{", "line 1"),
        (["-p", "7"], "x", "no partition 7"),
        (["/no/such/file"], "", "/no/such/file"),
    ],
)
def test_input_that_cannot_be_written_is_one_line(
    user: User, empty: str, arguments: list[str], stdin: str, why: str
) -> None:
    user.types("produce", empty, *arguments, stdin=stdin, code=1)
    assert why in user.errors
    assert user.errors.count("\n") == 1


# Ranges


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-e"], everything(0) + everything(1)),
        (["-e", "--from", "8"], everything(0, 8) + everything(1, 8)),
        (["-e", "--from", "-1"], everything(0, 9) + everything(1, 9)),
        (["--to", "2"], everything(0, 0, 2) + everything(1, 0, 2)),
        (["--from", "3", "--to", "5"], everything(0, 3, 5) + everything(1, 3, 5)),
        (["-e", "-p", "1"], everything(1)),
        (["-e", "--from", f"@{NOW_MS + 8 * HOUR_MS}"], everything(0, 8) + everything(1, 8)),
        (["--to", "@2023-11-15T00:13:20"], everything(0, 0, 2) + everything(1, 0, 2)),
        (["--to", "end", "--value", r"\.7$"], ["0.7", "1.7"]),
        (["-e", "--from", "end"], []),
        (["-e", "--header", "none"], []),
    ],
)
def test_a_range_is_read_and_nothing_else(
    user: User, topic: str, arguments: list[str], expected: list[str]
) -> None:
    assert values(user, topic, *arguments) == expected


def test_a_count_ends_the_reading(user: User, topic: str) -> None:
    assert len(values(user, topic, "-n", "7")) == 7
    assert values(user, topic, "-n", "2", "--value", r"^1\.") == ["1.0", "1.1"]


def test_topics_are_named_or_matched(user: User, topic: str) -> None:
    assert len(values(user, f"^{topic}$", "-e")) == 2 * PER_PARTITION
    user.types("consume", "^nothing-matches-this$", "-e", code=1)
    assert "no topic matches" in user.errors
    user.types("consume", "nothing-of-this-name", "-e", code=1)
    assert "`tidelog topic list` shows the topics" in user.errors
    user.types("consume", topic, "-e", "-p", "9", code=1)
    assert "no partition 9" in user.errors


@pytest.mark.parametrize(
    ("format", "count"), [("json", 20), ("jsonl", 20), ("yaml", 20), ("table", 20)]
)
def test_every_format_has_every_record(user: User, topic: str, format: str, count: int) -> None:
    printed = user.types("-o", format, "consume", topic, "-e")
    if format == "json":
        assert len(json.loads(printed)) == count
    elif format == "yaml":
        assert printed.count(f"- topic: {topic}\n") == count
    else:
        assert len(printed.splitlines()) == count


def test_an_empty_topic_is_an_empty_json_array(user: User, empty: str) -> None:
    assert json.loads(user.types("-o", "json", "consume", empty, "-e")) == []


# Groups


def test_a_group_goes_on_where_it_was(user: User, topic: str) -> None:
    first = user.lines("consume", topic, "-g", topic, "-n", "5")
    rest = user.lines("consume", topic, "-g", topic, "-e")
    assert sorted(first + rest) == everything(0) + everything(1)
    assert user.lines("consume", topic, "-g", topic, "-e") == []
    (row, _) = user.rows("group", "describe", topic)
    assert row["lag"] == 0


@contextmanager
def member_at_work(bootstrap: str, topic: str, settings: dict[str, str]) -> Iterator[None]:
    """A member of the group named like the topic, which owns all partitions and polls on."""
    stop = threading.Event()
    with Consumer({"group.id": topic, **settings}, bootstrap_servers=bootstrap) as consumer:
        consumer.subscribe([topic])
        eventually(lambda: consumer.poll(0.1) is not None and len(consumer.assignment()) == 1)

        def poll_on() -> None:
            while not stop.is_set():
                consumer.poll(0.1)

        with ThreadPoolExecutor(1) as pool:
            polling = pool.submit(poll_on)
            try:
                yield
            finally:
                stop.set()
            polling.result()


@pytest.mark.parametrize(
    "setting",
    ["partition.assignment.strategy=cooperative-sticky", "group.protocol=consumer"],
)
def test_a_member_without_partitions_ends_at_the_end(
    bootstrap: str, user: User, empty: str, setting: str
) -> None:
    key, _, value = setting.partition("=")
    with member_at_work(bootstrap, empty, {key: value}):
        assert user.lines("consume", empty, "-g", empty, "-e", "-X", setting) == []
        assert f"other members of group {empty} own all partitions" in user.errors


def test_a_member_of_a_group_ends_when_the_topic_is_unknown(user: User, topic_name: str) -> None:
    user.types("consume", topic_name, "-g", topic_name, "-e", code=1)
    assert "tidelog topic list" in user.errors


@pytest.mark.parametrize(
    "arguments",
    [
        ["-g", "g", "--to", "5"],
        ["-g", "g", "-p", "1"],
        ["-g", "g", "--from", "-5"],
        ["-e", "--to", "5"],
        ["--from", "stored"],
        ["--from", "yesterday"],
        ["-f", "%q"],
        ["-f", "%s", "-K", ":"],
        ["--key", "("],
        ["-o", "json", "-f", "%s"],
        ["-n", "0"],
    ],
)
def test_wrong_usage_of_consume(user: User, topic: str, arguments: list[str]) -> None:
    user.types("consume", topic, *arguments, code=2)
    assert user.errors.startswith("usage: tidelog consume ")


def test_following_ends_with_ctrl_c_and_130(bootstrap: str, user: User, empty: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tidelog", "consume", empty, "-b", bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Whoever runs the tests in the background may ignore it, and so would the command.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert process.stdout is not None
        user.types("produce", empty, stdin="first\n")
        assert process.stdout.readline() == b"first\n"
        user.types("produce", empty, stdin="second\n")
        assert process.stdout.readline() == b"second\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (130, b"")
    finally:
        process.kill()
        process.communicate()


def test_a_reader_that_goes_ends_the_command_silently(bootstrap: str, topic: str) -> None:
    command = f"{sys.executable} -m tidelog consume {topic} -b {bootstrap} | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        capture_output=True,
        timeout=60,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
        check=False,
    )
    assert done.stderr == b""
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_counts_as_the_null_device(
    bootstrap: str, empty: str, closed: str
) -> None:
    tidelog = f'"{sys.executable}" -m tidelog -b {bootstrap} --timeout 60s'
    commands = f"{tidelog} produce {empty} {closed} && {tidelog} consume {empty} -e {closed}"
    done = subprocess.run(
        ["sh", "-c", commands],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (done.stdout, "Traceback" in done.stderr) == ("", False)


@pytest.mark.parametrize("group", [(), ("--group", "patterns")])
def test_what_is_no_pattern_of_topics_is_said(user: User, group: tuple[str, ...]) -> None:
    user.types("consume", "^(", "-e", *group, code=1)
    assert "'^(' is no regular expression" in user.errors


def test_a_pattern_selects_the_same_topics_with_a_group_and_without(user: User, empty: str) -> None:
    user.types("produce", empty, stdin="one\n")
    pattern = f"^{empty[:-1]}"
    assert user.lines("consume", pattern, "-e") == ["one"]
    assert user.lines("consume", pattern, "-n", "1", "--group", f"g-{empty}") == ["one"]


# Performance


def test_speed_is_measured_and_plotted(user: User, empty: str) -> None:
    printed = user.types("perf", "produce", empty, "-n", "2000", "-s", "50", "--plot")
    assert printed.startswith("2,000 records, 0.1 MB in ")
    assert "latency ms: mean" in printed
    assert "│" in printed
    (totals,) = user.rows("perf", "consume", empty)
    assert totals["records"] == 2000
    (totals,) = user.rows("perf", "latency", empty, "-n", "20")
    assert totals["latency_ms"]["p99"] >= totals["latency_ms"]["p50"] > 0


def test_speed_is_measured_by_columns_too(user: User, empty: str) -> None:
    pytest.importorskip("pyarrow")
    (totals,) = user.rows("perf", "produce", empty, "-n", "3000", "--arrow")
    assert totals["records"] == 3000
    (totals,) = user.rows("perf", "consume", empty, "--arrow")
    assert (totals["records"], totals["bytes"]) == (3000, 300_000)


def test_a_rate_is_kept(user: User, empty: str) -> None:
    (totals,) = user.rows("perf", "produce", empty, "-n", "50", "--rate", "100")
    assert totals["seconds"] >= 0.4


def test_nothing_to_measure_is_said(user: User, empty: str) -> None:
    user.types("perf", "consume", empty, code=1)
    assert "is empty" in user.errors
    user.types("perf", "produce", empty, "--dry-run")
    assert "would be written" in user.errors
    eventually(lambda: user.types("consume", empty, "-e") == "", 1)
