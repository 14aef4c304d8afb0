from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.batches import simple_batch
from tests.support.segment_files import SegmentWriter
from tidelog.client.columns.arrow import BatchAssembler
from tidelog.client.errors import CorruptRecordsFetched
from tidelog.record.batch import Codec
from tidelog.record.control import ControlType, EndTransactionMarker, marker_batch
from tidelog.spark.log_planning import LogSlice, plan_slices
from tidelog.spark.log_reader import read_slice
from tidelog.spark.options import InvalidOption, source_options
from tidelog.types import TopicPartition

T, U = TopicPartition("t", 0), TopicPartition("u", 0)


def planned(path: Path, **options: str) -> list[list[LogSlice]]:
    return plan_slices(source_options({"path": str(path), **options}))


def rows(path: Path, **options: str) -> list[tuple[str, int]]:
    """(topic, offset) of what a query over the files reads, in order."""
    found: list[tuple[str, int]] = []
    for task in planned(path, **options):
        for wanted in task:
            for batch in read_slice(wanted, BatchAssembler(with_headers=False), check_crcs=True):
                read: Any = batch.select(["topic", "offset"]).to_pylist()
                found += [(row["topic"], row["offset"]) for row in read]
    return found


def offsets(path: Path, **options: str) -> list[int]:
    return [offset for _, offset in rows(path, **options)]


@pytest.fixture
def writer(tmp_path: Path) -> SegmentWriter:
    """Offsets 0 to 59 in two segments of three batches."""
    made = SegmentWriter(tmp_path, T)
    for number in range(6):
        if number == 3:
            made.roll()
        made.append(codec=Codec.ZSTD if number % 2 else Codec.NONE)
    return made


def test_everything_is_read_once_and_in_order(tmp_path: Path, writer: SegmentWriter) -> None:
    assert offsets(tmp_path) == list(range(60))
    assert len(planned(tmp_path)) == 1


@pytest.mark.parametrize(
    "split",
    [
        {"minPartitions": "5"},
        {"maxRecordsPerPartition": "7"},
        {"minPartitions": "20", "maxRecordsPerPartition": "30"},
    ],
)
def test_split_reading_gives_the_same(
    tmp_path: Path, writer: SegmentWriter, split: dict[str, str]
) -> None:
    assert offsets(tmp_path, **split) == list(range(60))
    assert len(planned(tmp_path, **split)) >= 5


def test_ends_may_lie_anywhere(tmp_path: Path, writer: SegmentWriter) -> None:
    ends = {"startingOffsets": '{"t": {"0": 17}}', "endingOffsets": '{"t": {"0": 44}}'}
    assert offsets(tmp_path, **ends) == list(range(17, 44))


def test_timestamps_are_found_in_the_records(tmp_path: Path, writer: SegmentWriter) -> None:
    """Batches begin at 1000 x (offset + 1), their records are a millisecond apart."""
    assert offsets(tmp_path, startingTimestamp="31004")[0] == 34
    assert offsets(tmp_path, endingTimestamp="11001") == list(range(11))
    assert offsets(tmp_path, startingTimestamp="1", endingTimestamp="99999999") == list(range(60))
    with pytest.raises(InvalidOption, match=r"t-0 is as late as 99999999 \(1970-01-02T03:46"):
        planned(tmp_path, startingTimestamp="99999999")
    with pytest.raises(InvalidOption, match=r"99999999999999 \(5138-11-16T09:46:39\.999\+00:00\)"):
        planned(tmp_path, startingTimestamp="99999999999999")
    with pytest.raises(InvalidOption, match=r"9223372036854775807 \(beyond the calendar\)"):
        planned(tmp_path, startingTimestamp=str(2**63 - 1))


def test_topics_are_chosen_as_from_a_broker(tmp_path: Path, writer: SegmentWriter) -> None:
    SegmentWriter(tmp_path, U).append(2)
    SegmentWriter(tmp_path, TopicPartition("__internal", 0)).append(2)
    assert {topic for topic, _ in rows(tmp_path)} == {"t", "u", "__internal"}
    assert rows(tmp_path, subscribe="u") == [("u", 0), ("u", 1)]
    assert {topic for topic, _ in rows(tmp_path, subscribePattern=".*")} == {"t", "u"}
    with pytest.raises(InvalidOption, match="holds no topic missing"):
        planned(tmp_path, subscribe="missing")


def test_a_torn_tail_is_left_aside(tmp_path: Path, writer: SegmentWriter) -> None:
    with writer.log.open("ab") as log:
        log.write(bytes(simple_batch(base_offset=60))[:40])
    assert offsets(tmp_path) == list(range(60))


def test_damage_in_the_middle_is_an_error_that_names_the_file(
    tmp_path: Path, writer: SegmentWriter
) -> None:
    first = tmp_path / "t-0" / "00000000000000000000.log"
    content = bytearray(first.read_bytes())
    content[16] = 9
    first.write_bytes(content)
    with pytest.raises(CorruptRecordsFetched, match=r"00000000000000000000\.log.*position 0"):
        rows(tmp_path)


def test_records_below_the_log_start_are_not_read(tmp_path: Path, writer: SegmentWriter) -> None:
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 25\n")
    assert offsets(tmp_path) == list(range(25, 60))


def test_committed_reading_leaves_out_aborted_and_open_transactions(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, T)
    of = {"producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    writer.append(5, producer_id=1, **of)
    writer.append(5)
    writer.append_bytes(_marker(1, ControlType.ABORT, 10), 1)
    writer.abort_entry(1, 0, 10)
    writer.append(4, producer_id=1, **of)
    writer.append_bytes(_marker(1, ControlType.COMMIT, 15), 1)
    writer.append(3, producer_id=2, **of)
    writer.append(3)
    committed = {"kafka.isolation.level": "read_committed"}
    assert offsets(tmp_path, **committed) == [*range(5, 10), *range(11, 15)]
    assert offsets(tmp_path) == [*range(10), *range(11, 15), *range(16, 22)]
    assert offsets(tmp_path, minPartitions="9", **committed) == [*range(5, 10), *range(11, 15)]


def _marker(producer_id: int, control_type: ControlType, base_offset: int) -> bytearray:
    return marker_batch(
        EndTransactionMarker(control_type, 0),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp=1,
        base_offset=base_offset,
    )
