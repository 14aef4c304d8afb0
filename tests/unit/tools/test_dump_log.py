"""`tidelog dump-log` against what Kafka 3.9's own tool printed of the same files, line by line."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.ipc
import pyarrow.parquet
import pytest

from tidelog.record.builder import batch_of
from tidelog.tools.cli.main import main
from tidelog.tools.dump.dump_log_segments import Progress

HOME = Path(__file__).resolve().parents[2] / "fixtures" / "kafka-3.9"
EXPECTED = sorted((HOME / "expected").glob("*.txt"))


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda path: path.stem)
def test_text_is_kafkas_to_the_letter(
    expected: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, *lines = expected.read_bytes().decode().split("\n")[:-1]
    monkeypatch.chdir(HOME)

    assert main(["dump-log", *arguments.split()]) == 0

    shown = capsys.readouterr()
    said = [f"stderr: {line.replace(f'{HOME}/', '')}" for line in shown.err.splitlines()]
    assert [*shown.out.split("\n")[:-1], *said] == lines


LOG = HOME / "data" / "codecs-0" / f"{0:020d}.log"


@pytest.mark.parametrize("form", ["text", "jsonl"])
def test_a_reader_that_goes_before_the_end_is_no_error(form: str) -> None:
    run = "import sys; from tidelog.tools.cli.main import main; sys.exit(main())"
    files = ",".join([str(LOG)] * 300)  # more than a pipe and a buffer hold
    command = ["dump-log", "--print-data-log", "--output", form, "--files", files]
    process = subprocess.Popen(
        [sys.executable, "-c", run, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    process.stdout.read(1)
    process.stdout.close()

    _, errors = process.communicate(timeout=60)

    assert (errors, process.returncode) == (b"", 0)


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, object]]:
    assert main(["dump-log", *arguments, "--output", "jsonl"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_json_lines_hold_batches_and_records(capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys, "--files", str(LOG), "--deep-iteration")

    batches = [row for row in found if row["kind"] == "batch"]
    records = [row for row in found if row["kind"] == "record"]
    assert [row["offset"] for row in records] == list(range(len(records)))
    assert [row["baseOffset"] for row in batches][:3] == [0, 4, 8]
    assert all(row["isValid"] for row in batches)
    assert records[0]["key"] == "key 0-0"
    assert records[0]["headers"] == [["trace", "0"], ["empty", None]]
    assert records[4]["key"] is None


def test_json_lines_nest_what_a_decoder_gives(capsys: pytest.CaptureFixture[str]) -> None:
    path = HOME / "data" / "__consumer_offsets-0" / f"{0:020d}.log"

    found = rows(capsys, "--files", str(path), "--offsets-decoder")

    keys = [row["key"] for row in found if row["kind"] == "record"]
    assert {"type": "2", "data": {"group": "readers"}} in keys


def test_bytes_that_are_no_text_are_base64_in_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(batch_of([(b"\xff\xfe", b"text", (), 1)]))

    record = rows(capsys, "--files", str(path), "--deep-iteration")[-1]

    assert record["key"] == {"base64": "//4="}
    assert record["value"] == "text"


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_table_holds_the_records(form: str, tmp_path: Path) -> None:
    target = tmp_path / f"records.{form}"
    arguments = ["--files", str(LOG), "--deep-iteration", "--output", form, "--out", str(target)]

    assert main(["dump-log", *arguments]) == 0

    table = read_table(target)
    assert table["offset"].to_pylist() == list(range(table.num_rows))
    assert table["key"][0].as_py() == b"key 0-0"
    assert table["headers"][0].as_py() == [
        {"key": "trace", "value": b"0"},
        {"key": "empty", "value": None},
    ]


def test_a_table_of_batches_has_kafkas_figures(tmp_path: Path) -> None:
    target = tmp_path / "batches.parquet"

    assert main(["dump-log", "--files", str(LOG), "--output", "parquet", "--out", str(target)]) == 0

    table = read_table(target)
    expected = (HOME / "expected" / "codecs-0.shallow.txt").read_text()
    for crc, position in zip(table["crc"], table["position"], strict=True):
        assert f" position: {position} " in expected
        assert f" crc: {crc} isvalid: true" in expected


def test_a_table_has_rows_of_one_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = f"{LOG},{LOG.with_suffix('.index')}"
    target = tmp_path / "mixed.parquet"

    assert main(["dump-log", "--files", files, "--output", "parquet", "--out", str(target)]) == 1
    assert "one kind" in capsys.readouterr().err


def read_table(path: Path) -> Any:
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path)
    return pyarrow.ipc.open_file(path).read_all()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cluster-metadata-decoder"], "--cluster-metadata-decoder: records of a KRaft"),
        (["--remote-log-metadata-decoder"], "tiered storage"),
        (["--share-group-state-decoder"], "share groups"),
        (["--value-decoder-class", "com.example.Mine"], "com.example.Mine is a Java class"),
        (["--output", "parquet"], "--out FILE"),
    ],
)
def test_what_is_not_shown_is_refused_with_a_way_out(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dump-log", "--files", str(LOG), *arguments]) == 1
    assert said in capsys.readouterr().err


def test_numbers_are_decoded_as_kafkas_decoders_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(batch_of([((7).to_bytes(4, "big"), (9).to_bytes(8, "big"), (), 1)]))
    classes = ["--key-decoder-class", "kafka.serializer.IntegerDecoder"]
    classes += ["--value-decoder-class", "org.apache.kafka.tools.api.LongDecoder"]

    assert main(["dump-log", "--files", str(path), *classes]) == 0
    assert capsys.readouterr().out.endswith(" key: 7 payload: 9\n")


def test_unreadable_files_are_named_and_the_others_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    zeros = tmp_path / f"{5:020d}.log"
    zeros.write_bytes(bytes(100))
    gone = tmp_path / f"{6:020d}.log"

    assert main(["dump-log", "--files", f"{zeros},{gone},{LOG}"]) == 1

    shown = capsys.readouterr()
    assert f"{zeros}: position 0: a batch cannot be 0 bytes long" in shown.err
    assert f"{gone}: No such file" in shown.err
    assert "baseOffset: 8 " in shown.out


def test_records_that_cannot_be_read_do_not_hide_the_next_batches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"{0:020d}.log"
    content = bytearray(LOG.read_bytes())
    content[61:90] = b"\xff" * 29
    path.write_bytes(content)

    assert main(["dump-log", "--files", str(path), "--print-data-log"]) == 1

    shown = capsys.readouterr()
    assert "the records at position 0 cannot be read" in shown.err
    assert "isvalid: false" in shown.out
    assert "| offset: 8 " in shown.out


def test_a_long_file_has_a_bar_on_a_terminal_alone() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, shown in ((Terminal(), "[###############..............."), (io.StringIO(), "")):
        progress = Progress(stream)
        progress.at("a.log", 50 << 20, 100 << 20)
        progress.at("short.log", 50, 100)
        assert shown in stream.getvalue()
        assert bool(stream.getvalue()) == bool(shown)
        progress.end()
