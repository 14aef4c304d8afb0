"""The offsets a batch query wants against those the logs hold. No I/O.

start past the log's end          an error, whatever failOnDataLoss says
start before the log's start      data loss; with failOnDataLoss=false from the log's start
end past the log's end            data loss; with failOnDataLoss=false up to the log's end
start after end                   an error
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.spark.offsets import PartitionOffsets, partitions_text
from tidelog.spark.options import InvalidOption
from tidelog.spark.planning import OffsetRange

if TYPE_CHECKING:
    from tidelog.spark.data_loss import DataLossPolicy
    from tidelog.types import TopicPartition


def ranges_within(
    start: PartitionOffsets,
    end: PartitionOffsets,
    earliest: PartitionOffsets,
    latest: PartitionOffsets,
    data_loss: DataLossPolicy,
) -> list[OffsetRange]:
    """What of the wanted offsets the logs hold."""
    ranges = []
    for partition, start_offset in start.items():
        end_offset, log_end = end[partition], latest[partition]
        if start_offset > log_end:
            raise InvalidOption(
                "startingOffsets",
                f"{start_offset} of {partition} lies beyond the end of its log, {log_end}",
            )
        if start_offset > end_offset:
            raise InvalidOption(
                "startingOffsets",
                f"{partition} would start at {start_offset}, after its end at {end_offset}",
            )
        if start_offset < earliest[partition]:
            data_loss.report(
                f"{partition} cannot be read from {start_offset}: its log begins at "
                f"{earliest[partition]}"
            )
            start_offset = earliest[partition]
        if end_offset > log_end:
            data_loss.report(
                f"{partition} cannot be read up to {end_offset}: its log ends at {log_end}"
            )
            end_offset = log_end
        ranges.append(OffsetRange(partition, start_offset, end_offset))
    return ranges


def require_all(option: str, given: PartitionOffsets, partitions: set[TopicPartition]) -> None:
    if given.keys() == partitions:
        return
    left_out, unknown = partitions - given.keys(), given.keys() - partitions
    problems = [
        f"leaves out {partitions_text(left_out)}" if left_out else "",
        f"names {partitions_text(unknown)}, not read by this query" if unknown else "",
    ]
    raise InvalidOption(
        option,
        f"must name every partition (-1 for latest, -2 for earliest), but "
        f"{' and '.join(filter(None, problems))}",
    )
