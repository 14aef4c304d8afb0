"""What a task does in an executor: it reads one range of offsets as Arrow record batches.

The end is known, so nothing waits at it. When the log no longer holds the range, or its topic is
gone or was made anew, `failOnDataLoss` decides between an error and going on with what is left.

Spark reuses its Python workers, and a worker runs one task at a time. So a worker keeps its
connections and its buffers from one task to the next (`process_cluster`, `process_assembler`).
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from tidelog.client.blocking.cluster import BlockingCluster
from tidelog.client.columns.arrow import BatchAssembler
from tidelog.client.errors import LogTruncation, OffsetOutOfRange, UnknownTopic
from tidelog.spark.options import ROWS_MAX
from tidelog.types import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from tidelog.client.columns.range_reader import RangeReader
    from tidelog.config.client import ConsumerConfig
    from tidelog.spark.offset_ranges import OffsetRange
    from tidelog.spark.options import DataLossPolicy, SourceOptions
    from tidelog.types import Uuid

CLUSTERS_MAX: Final = 8

_clusters: dict[tuple[int, tuple[tuple[str, str], ...]], BlockingCluster] = {}


def process_cluster(config: ConsumerConfig) -> BlockingCluster:
    """The one of this process for that configuration; the least used are closed.

    What it knows of a topic may be old: the topic may have been deleted and made again since.
    """
    key = os.getpid(), tuple(sorted(config.given.items()))
    cluster = _clusters.pop(key, None)
    if cluster is None:
        cluster = BlockingCluster(config)
    _clusters[key] = cluster
    while len(_clusters) > CLUSTERS_MAX:
        _clusters.pop(next(iter(_clusters))).close()
    return cluster


@lru_cache(maxsize=1)
def process_assembler(with_headers: bool) -> BatchAssembler:
    """A task finds the memory that the one before it has decoded into, about 12 MB, and does not
    pay for fresh pages."""
    return BatchAssembler(with_headers=with_headers)


def read_range(
    options: SourceOptions, wanted: OffsetRange, topic_id: Uuid | None
) -> Iterator[pa.RecordBatch]:
    from tidelog.client.columns.range_reader import RangeReader

    cluster = process_cluster(options.executor_config())
    cluster.forget([wanted.partition.topic])
    if topic_id is not None and _is_made_anew(cluster, wanted.partition.topic, topic_id):
        options.data_loss.report(f"{wanted} cannot be read: its topic was deleted and made anew")
        return iter(())
    assembler = process_assembler(options.include_headers)
    reader = RangeReader(cluster, rows_max=ROWS_MAX, assembler=assembler)
    return read_what_is_there(reader, wanted, options.data_loss)


def _is_made_anew(cluster: BlockingCluster, topic: str, topic_id: Uuid) -> bool:
    try:
        return cluster.topic(topic).topic_id not in (topic_id, ZERO_UUID)
    except UnknownTopic:
        return False  # the fetch tells


def read_what_is_there(
    reader: RangeReader, wanted: OffsetRange, data_loss: DataLossPolicy
) -> Iterator[pa.RecordBatch]:
    """Each pass either ends, or goes on behind a gap that was reported."""
    position = wanted.start_offset
    while position < wanted.end_offset:
        try:
            for batch in reader.fetch_columns(wanted.partition, position, wanted.end_offset):
                yield batch
                position = batch.column("offset")[-1].as_py() + 1
            return
        except OffsetOutOfRange as problem:
            position = _behind_gap(reader.cluster, wanted, position, problem, data_loss)
        except LogTruncation as problem:
            data_loss.report(str(problem))
        except UnknownTopic as problem:
            data_loss.report(f"{wanted} cannot be read: {problem}")
            return


def _behind_gap(
    cluster: BlockingCluster,
    wanted: OffsetRange,
    position: int,
    problem: OffsetOutOfRange,
    data_loss: DataLossPolicy,
) -> int:
    """The next offset to read after the gap at `position`."""
    partition = wanted.partition
    earliest = cluster.earliest_offsets([partition])[partition]
    if position < earliest:
        behind = min(earliest, wanted.end_offset)
        data_loss.report(
            f"offsets {position} to {behind - 1} of {partition} are gone: its log begins at "
            f"{earliest}"
        )
        return behind
    latest = cluster.latest_offsets([partition])[partition]
    if position < latest:
        raise problem
    data_loss.report(
        f"offsets {position} to {wanted.end_offset - 1} of {partition} are gone: its log ends at "
        f"{latest}"
    )
    return wanted.end_offset
