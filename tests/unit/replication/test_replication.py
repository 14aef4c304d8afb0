"""Stories of a replicated partition: high watermark, in-sync set, acks, fail-over, truncation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.log_builder import TOPIC_ID
from tests.support.metadata import in_loop, refused
from tests.support.replica_cluster import (
    LAG_MAX_MS,
    Link,
    Links,
    NoFlusher,
    ReplicaCluster,
    values_in,
)
from tidelog.config.broker import BrokerConfig
from tidelog.config.topic import LogConfig
from tidelog.errors import ErrorCode, KafkaError
from tidelog.log import truncation_walk
from tidelog.log.log_errors import UnexpectedAppendOffset
from tidelog.log.producer_snapshots import SnapshotFiles
from tidelog.log.segment.segment_scan import SegmentScan
from tidelog.protocol.fetch_metadata import FINAL_EPOCH
from tidelog.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tidelog.record.builder import batch_of
from tidelog.replication import replica_fetcher as fetcher_module
from tidelog.replication.followed_partition import FollowedPartition
from tidelog.replication.partition import Partition
from tidelog.replication.replica_fetcher import FETCH_VERSION, ReplicaFetcher


async def started(tmp_path: Path, **options: object) -> ReplicaCluster:
    cluster = ReplicaCluster(tmp_path, **options)  # type: ignore[arg-type]
    cluster.start()
    await cluster.settle()
    await cluster.run()
    return cluster


def values_on(cluster: ReplicaCluster, number: int) -> list[bytes]:
    node = cluster.nodes[number]
    data = node.bytes_up_to(node.partition.log.log_end_offset)
    return [value for _, value in values_in(data)]


@in_loop
async def test_records_are_committed_when_all_in_sync_replicas_have_them(tmp_path: Path) -> None:
    cluster = await started(tmp_path)
    outcomes: list[ErrorCode] = []
    cluster.produce([b"a", b"b"], outcomes)
    leader = cluster.leader.partition
    assert (leader.log.high_watermark, outcomes) == (0, [])
    await cluster.run()
    assert (leader.log.high_watermark, outcomes) == (2, [ErrorCode.NONE])
    for number in cluster.nodes:
        assert values_on(cluster, number) == [b"a", b"b"]


@in_loop
async def test_followers_learn_the_high_watermark_with_their_next_fetch(tmp_path: Path) -> None:
    cluster = await started(tmp_path)
    cluster.produce([b"a"])
    await cluster.run(advance_ms=20)
    for node in cluster.nodes.values():
        assert node.partition.log.high_watermark == 1


@in_loop
async def test_a_follower_that_lags_leaves_the_in_sync_set_and_comes_back(tmp_path: Path) -> None:
    cluster = await started(tmp_path)
    cluster.nodes[3].crash()
    outcomes: list[ErrorCode] = []
    cluster.produce([b"a"], outcomes)
    await cluster.run()
    assert outcomes == []
    cluster.clock.advance(ms=LAG_MAX_MS + 1)
    leadership = cluster.leader.partition.leadership
    assert leadership is not None
    assert leadership.maybe_shrink_isr()
    cluster.leader.alter_partition_manager.submit(cluster.leader.partition)
    await cluster.run()
    assert (cluster.state.isr, outcomes) == ((1, 2), [ErrorCode.NONE])
    cluster.nodes[3].start()
    cluster.nodes[3].obey(cluster.state)
    cluster.leader.host.set_alive({1, 2, 3})
    await cluster.run()
    assert cluster.state.isr == (1, 2, 3)
    assert values_on(cluster, 3) == [b"a"]


@in_loop
async def test_a_leader_that_knows_of_another_serves_nobody_until_it_hears_more(
    tmp_path: Path,
) -> None:
    cluster = await started(tmp_path)
    leader = cluster.leader.partition
    outcomes: list[ErrorCode] = []
    cluster.produce([b"a"], outcomes)
    leader.suspend()
    assert outcomes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert not leader.is_leader
    await cluster.run(advance_ms=20)
    assert leader.log.high_watermark == 0
    leader.resume()
    await cluster.run(advance_ms=20)
    assert leader.log.high_watermark == 1


@in_loop
async def test_what_another_leads_is_not_resumed(tmp_path: Path) -> None:
    cluster = await started(tmp_path)
    former = cluster.leader.partition
    former.suspend()
    former.make_follower(cluster.state._replace(leader=2, leader_epoch=1))
    former.resume()
    assert not former.is_leader


@in_loop
async def test_an_answer_to_a_follower_is_bounded_by_fetch_max_bytes(tmp_path: Path) -> None:
    config = BrokerConfig({"fetch.max.bytes": "1024"})
    cluster = await started(tmp_path, broker_config=config)
    for _ in range(5):
        cluster.produce([bytes(400)])
    row = FetchPartition(current_leader_epoch=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1 << 20,  # more than an answer may hold is not waited for
        max_bytes=1 << 20,
        session_epoch=FINAL_EPOCH,
        topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[row])],
    )
    answer = cluster.leader.serve_fetch(request, cast(Any, None), 2, FETCH_VERSION)
    assert isinstance(answer, FetchResponse)
    assert len(answer.responses[0].partitions[0].records or b"") == 1024
    await cluster.run(advance_ms=10)
    assert values_on(cluster, 2) == [bytes(400)] * 5


@in_loop
async def test_a_former_life_of_a_follower_does_not_speak_for_it(tmp_path: Path) -> None:
    cluster = await started(tmp_path)
    cluster.nodes[3].broker_epoch = 7
    cluster.produce([b"a"])
    await cluster.run()
    outcomes: list[ErrorCode] = []
    cluster.nodes[3].broker_epoch = 6
    cluster.produce([b"b"])  # the Fetch that waits for it is of the new life still
    await cluster.run()
    cluster.produce([b"c"], outcomes)
    await cluster.run(advance_ms=20)
    assert outcomes == []
    cluster.nodes[3].broker_epoch = 7
    await cluster.run(advance_ms=100)
    assert outcomes == [ErrorCode.NONE]


@in_loop
async def test_a_follower_that_fetches_is_not_thrown_out_however_long_it_is_quiet(
    tmp_path: Path,
) -> None:
    cluster = await started(tmp_path)
    await cluster.run(rounds=100, advance_ms=LAG_MAX_MS // 10)
    cluster.produce([b"after a long silence"])
    leadership = cluster.leader.partition.leadership
    assert leadership is not None
    assert not leadership.maybe_shrink_isr()


@in_loop
async def test_the_high_watermark_waits_for_a_smaller_isr_to_be_committed(tmp_path: Path) -> None:
    cluster = await started(tmp_path)
    cluster.nodes[3].crash()
    outcomes: list[ErrorCode] = []
    cluster.produce([b"a"], outcomes)
    await cluster.run()
    cluster.clock.advance(ms=LAG_MAX_MS + 1)
    partition = cluster.leader.partition
    assert partition.leadership is not None
    partition.leadership.maybe_shrink_isr()
    partition.advance_high_watermark()
    assert partition.leadership.maximal_isr == {1, 2, 3}
    assert outcomes == []


@in_loop
async def test_an_isr_that_is_asked_for_counts_for_the_high_watermark_already(
    tmp_path: Path,
) -> None:
    cluster = await started(tmp_path)
    cluster.elect(1, (1, 2))
    cluster.tell()
    await cluster.run(rounds=3)
    partition = cluster.leader.partition
    assert partition.leadership is not None
    remote = partition.leadership.remotes[3]
    remote.log_end_offset = partition.log.log_end_offset
    partition.leadership.commit_isr((1, 2))
    assert partition.leadership.maybe_expand_isr(remote)
    assert partition.leadership.isr == {1, 2}
    assert partition.leadership.maximal_isr == {1, 2, 3}


@in_loop
async def test_too_few_in_sync_replicas_refuse_acks_all_before_the_append(tmp_path: Path) -> None:
    cluster = await started(tmp_path)
    for number in (2, 3):
        cluster.nodes[number].crash()
    cluster.elect(1, (1,))
    cluster.tell()
    with refused(ErrorCode.NOT_ENOUGH_REPLICAS):
        cluster.produce([b"refused"])
    assert cluster.leader.partition.log.log_end_offset == 0


@in_loop
async def test_too_few_in_sync_replicas_after_the_append_are_told_then(tmp_path: Path) -> None:
    cluster = await started(tmp_path)
    outcomes: list[ErrorCode] = []
    cluster.produce([b"a"], outcomes)
    partition = cluster.leader.partition
    partition.isr_altered([1], 0, 9)
    assert outcomes == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    assert partition.log.high_watermark == 0


@in_loop
async def test_a_high_watermark_does_not_move_below_min_insync_replicas(tmp_path: Path) -> None:
    cluster = await started(tmp_path)
    for number in (2, 3):
        cluster.nodes[number].crash()
    cluster.elect(1, (1,))
    cluster.tell()
    partition = cluster.leader.partition
    from tests.support.batches import simple_batch

    partition.append(memoryview(simple_batch(3)), 11)  # acks=1
    assert (partition.log.high_watermark, partition.log.log_end_offset) == (0, 3)


@in_loop
async def test_what_waits_is_told_when_another_leads(tmp_path: Path) -> None:
    cluster = await started(tmp_path)
    outcomes: list[ErrorCode] = []
    cluster.produce([b"a"], outcomes)
    cluster.elect(2)
    cluster.tell()
    assert outcomes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


class Failing:
    """Told an outcome, and fails then."""

    def __init__(self) -> None:
        self.told: list[ErrorCode] = []

    def __call__(self, code: ErrorCode) -> None:
        self.told.append(code)
        raise ZeroDivisionError


def nobody_hears(partition: Partition) -> None:
    partition.isr_altered([1], 0, 9)


def another_leads(partition: Partition) -> None:
    partition.fail_waiting(ErrorCode.NOT_LEADER_OR_FOLLOWER)


@pytest.mark.parametrize(
    ("happens", "code"),
    [
        (None, ErrorCode.NONE),
        (nobody_hears, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        (another_leads, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
@in_loop
async def test_one_that_fails_on_its_outcome_keeps_it_from_no_other(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    happens: Callable[[Partition], object] | None,
    code: ErrorCode,
) -> None:
    cluster = await started(tmp_path)
    end_offset = cluster.produce([b"a"]) + 1
    partition = cluster.leader.partition
    failing, outcomes = Failing(), list[ErrorCode]()
    partition.when_committed(end_offset, failing)
    partition.when_committed(end_offset, outcomes.append)
    if happens is not None:
        happens(partition)
    else:
        await cluster.run()
    assert (failing.told, outcomes) == ([code], [code])
    assert "ZeroDivisionError" in caplog.text


@in_loop
async def test_one_that_fails_on_deleted_records_keeps_them_from_no_other(tmp_path: Path) -> None:
    cluster = await started(tmp_path)
    cluster.produce([b"a"])
    await cluster.run()
    partition = cluster.leader.partition
    assert partition.leadership is not None
    partition.log.maybe_increment_log_start_offset(1)
    partition.leadership.wake_follower_fetches()
    failing, outcomes = Failing(), list[ErrorCode]()
    partition.when_low_watermark(1, failing)
    partition.when_low_watermark(1, outcomes.append)
    await cluster.run()
    assert (failing.told, outcomes) == ([ErrorCode.NONE], [ErrorCode.NONE])


@in_loop
async def test_a_returning_leader_truncates_by_epoch_and_goes_on(tmp_path: Path) -> None:
    cluster = await started(tmp_path)
    outcomes: list[ErrorCode] = []
    cluster.produce([b"kept"], outcomes)
    await cluster.run()
    assert outcomes == [ErrorCode.NONE]
    cluster.produce([b"lost 1"])  # in the leader's log alone
    cluster.produce([b"lost 2"])
    cluster.nodes[1].crash()
    cluster.mail.clear()
    cluster.fail_over()
    cluster.tell()
    await cluster.run()
    cluster.produce([b"new"], outcomes)
    await cluster.run()
    cluster.nodes[1].start()
    cluster.nodes[1].obey(cluster.state)
    cluster.leader.host.set_alive({1, 2, 3})
    await cluster.run()
    for number in cluster.nodes:
        assert values_on(cluster, number) == [b"kept", b"new"]
    assert cluster.state.isr == (2, 3, 1) or set(cluster.state.isr) == {1, 2, 3}


@pytest.mark.parametrize("is_idempotent", [True, False])
@in_loop
async def test_a_retry_after_a_fail_over_is_written_twice_without_idempotence_only(
    tmp_path: Path, is_idempotent: bool
) -> None:
    """All replicas have the records, and the leader dies before it can say so."""
    cluster = await started(tmp_path)
    records = [(None, b"once?", (), 0)]
    batch = batch_of(records)
    if is_idempotent:
        batch = batch_of(records, producer_id=9, producer_epoch=0, base_sequence=0)
    cluster.leader.partition.append(memoryview(bytearray(batch)), 11)
    await cluster.run(rounds=4)
    cluster.nodes[1].crash()
    cluster.mail.clear()
    cluster.fail_over()
    cluster.tell()
    await cluster.run()
    info = cluster.leader.partition.append(memoryview(bytearray(batch)), 11)
    assert (info.is_duplicate, info.base_offset) == ((True, 0) if is_idempotent else (False, 1))
    await cluster.run()
    assert values_on(cluster, 3) == [b"once?"] * (1 if is_idempotent else 2)


@in_loop
async def test_back_to_back_elections_leave_equal_logs(tmp_path: Path) -> None:
    """KIP-279: a follower may have entries of a later epoch than any in the new leader's log."""
    cluster = await started(tmp_path)
    cluster.produce([b"one"])
    cluster.mail.clear()
    cluster.elect(2)
    cluster.nodes[2].obey(cluster.state)
    cluster.produce([b"two"])  # epoch 1, on broker 2 alone
    cluster.nodes[2].crash()
    cluster.elect(3, (3, 1))
    cluster.tell()
    cluster.produce([b"three"])  # epoch 2
    await cluster.run()
    cluster.nodes[2].start()
    cluster.nodes[2].obey(cluster.state)
    await cluster.run()
    everything = [values_on(cluster, number) for number in cluster.nodes]
    assert everything == [everything[0]] * 3
    assert everything[0][-1] == b"three"


@in_loop
async def test_a_follower_behind_the_leaders_log_start_begins_anew_there(tmp_path: Path) -> None:
    cluster = await started(tmp_path, config=LogConfig(min_insync_replicas=1))
    cluster.nodes[3].crash()
    cluster.elect(1, (1, 2))
    cluster.tell()
    for number in range(5):
        cluster.produce([b"%d" % number])
    await cluster.run()
    cluster.leader.partition.log.maybe_increment_log_start_offset(4)
    cluster.nodes[3].start()
    cluster.nodes[3].obey(cluster.state)
    cluster.leader.host.set_alive({1, 2, 3})
    await cluster.run()
    log = cluster.nodes[3].partition.log
    assert (log.log_start_offset, log.log_end_offset) == (4, 5)
    assert values_on(cluster, 3) == [b"4"]


@in_loop
async def test_a_shorter_leader_after_an_unclean_election_cuts_its_followers(
    tmp_path: Path,
) -> None:
    cluster = await started(tmp_path)
    cluster.nodes[3].crash()
    cluster.elect(1, (1, 2))
    cluster.tell()
    for number in range(4):
        cluster.produce([b"%d" % number])
    await cluster.run()
    cluster.nodes[1].crash()
    cluster.nodes[2].crash()
    cluster.nodes[3].start()
    cluster.fail_over(unclean=True)
    cluster.tell()
    for number in (1, 2):
        cluster.nodes[number].start()
    cluster.tell()
    cluster.leader.host.set_alive({1, 2, 3})
    await cluster.run()
    assert [values_on(cluster, number) for number in cluster.nodes] == [[], [], []]


@in_loop
async def test_deleted_records_wait_for_every_replica_that_lives(tmp_path: Path) -> None:
    cluster = await started(tmp_path)
    cluster.produce([b"a"])
    cluster.produce([b"b"])
    await cluster.run()
    partition = cluster.leader.partition
    assert partition.leadership is not None
    partition.log.maybe_increment_log_start_offset(1)
    partition.leadership.wake_follower_fetches()
    outcomes: list[ErrorCode] = []
    partition.when_low_watermark(1, outcomes.append)
    assert (outcomes, partition.low_watermark()) == ([], 0)
    await cluster.run()
    assert (outcomes, partition.low_watermark()) == ([ErrorCode.NONE], 1)


@in_loop
async def test_deleted_records_do_not_wait_for_the_dead(tmp_path: Path) -> None:
    cluster = await started(tmp_path)
    cluster.produce([b"a"])
    await cluster.run()
    cluster.nodes[3].crash()
    cluster.leader.host.set_alive({1, 2})
    partition = cluster.leader.partition
    assert partition.leadership is not None
    partition.log.maybe_increment_log_start_offset(1)
    partition.leadership.wake_follower_fetches()
    await cluster.run()
    assert partition.low_watermark() == 1


@in_loop
async def test_deleted_records_stop_waiting_for_one_that_dies(tmp_path: Path) -> None:
    cluster = await started(tmp_path)
    cluster.produce([b"a"])
    await cluster.run()
    cluster.nodes[3].crash()
    partition = cluster.leader.partition
    assert partition.leadership is not None
    partition.log.maybe_increment_log_start_offset(1)
    partition.leadership.wake_follower_fetches()
    outcomes: list[ErrorCode] = []
    partition.when_low_watermark(1, outcomes.append)
    await cluster.run()
    assert outcomes == []
    cluster.leader.host.set_alive({1, 2})
    partition.others_changed()
    assert outcomes == [ErrorCode.NONE]


@in_loop
async def test_a_follower_that_missed_a_term_is_fenced_and_not_sent_another_history(
    tmp_path: Path,
) -> None:
    """Its fetch session is of an epoch in which the leader's log was another one: to read on where
    it stood then would leave a gap between two histories.
    """
    cluster = await started(tmp_path)
    cluster.produce([b"kept"])
    await cluster.run()
    for node in (cluster.nodes[1], cluster.nodes[2]):
        node.host.set_alive({1, 2, 3})
    cluster.produce([b"old 1"])
    cluster.produce([b"old 2"])
    await cluster.run(rounds=2)
    assert values_on(cluster, 3) == [b"kept", b"old 1", b"old 2"]
    # 1 is told to follow, cuts its log, and leads again; 3 hears of neither.
    leader = cluster.nodes[1].partition
    cluster.elect(2)
    cluster.nodes[1].obey(cluster.state)
    leader.log.truncate_to(1)
    cluster.elect(1)
    cluster.nodes[1].obey(cluster.state)
    for number in range(5):
        cluster.produce([b"new %d" % number])
    await cluster.run()
    assert values_on(cluster, 3) == [b"kept", b"old 1", b"old 2"]
    cluster.tell()
    await cluster.run()
    assert values_on(cluster, 3) == values_on(cluster, 1)


@in_loop
async def test_a_leader_that_is_out_of_range_without_reason_is_not_asked_over_and_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await started(tmp_path)
    asked = 0

    def out_of_range(*_: object, **__: object) -> None:
        nonlocal asked
        asked += 1
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)

    monkeypatch.setattr(Partition, "note_follower_fetch", out_of_range)
    cluster.elect(1)
    cluster.tell()
    await cluster.run(rounds=1_000)
    assert asked < 40, "two followers, a second, pauses that grow from 10 ms"


@in_loop
async def test_a_range_that_was_asked_for_in_an_old_epoch_does_not_stop_the_following_of_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await started(tmp_path, broker_count=2)
    asked: list[asyncio.Future[object]] = []

    def out_of_range(*_: object, **__: object) -> None:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)

    async def call_later(*_: object) -> object:
        asked.append(asyncio.get_running_loop().create_future())
        return await asked[-1]

    with monkeypatch.context() as patch:
        patch.setattr(Partition, "note_follower_fetch", out_of_range)
        patch.setattr(Link, "call", call_later)
        cluster.elect(1)
        cluster.tell()
        await cluster.run()
    assert len(asked) == 1
    cluster.elect(1)
    cluster.tell()
    asked[0].set_exception(KafkaError(ErrorCode.FENCED_LEADER_EPOCH))
    await cluster.run(advance_ms=20)  # past a Fetch that brings nothing
    outcomes: list[ErrorCode] = []
    for number in range(3):
        cluster.produce([b"%d" % number], outcomes)
        await cluster.run(advance_ms=20)
    assert outcomes == [ErrorCode.NONE] * 3


@in_loop
async def test_a_lost_link_is_made_anew_and_nothing_is_missed(tmp_path: Path) -> None:
    cluster = await started(tmp_path)
    outcomes: list[ErrorCode] = []
    for number in range(10):
        cluster.produce([b"%d" % number], outcomes)
        for link in list(cluster.links):
            link.break_off()
        await cluster.run(rounds=30, advance_ms=10)
    assert outcomes == [ErrorCode.NONE] * 10
    for number in cluster.nodes:
        assert values_on(cluster, number) == [b"%d" % n for n in range(10)]


@in_loop
async def test_a_leader_that_is_cut_off_and_alone_promises_nothing(tmp_path: Path) -> None:
    cluster = await started(tmp_path, config=LogConfig(min_insync_replicas=1))
    for number in (2, 3):
        cluster.nodes[number].crash()
    cluster.elect(1, (1,))
    cluster.tell()
    cluster.leader.host.may_be_replaced = lambda: True
    with refused(ErrorCode.NOT_ENOUGH_REPLICAS):
        cluster.produce([b"refused"])
    cluster.leader.host.may_be_replaced = lambda: False
    outcomes: list[ErrorCode] = []
    cluster.produce([b"taken"], outcomes)
    assert outcomes == [ErrorCode.NONE]


@in_loop
async def test_a_leader_that_is_cut_off_still_commits_with_its_followers(tmp_path: Path) -> None:
    """They would not fetch from it if another were elected."""
    cluster = await started(tmp_path)
    cluster.leader.host.may_be_replaced = lambda: True
    outcomes: list[ErrorCode] = []
    cluster.produce([b"a"], outcomes)
    await cluster.run()
    assert outcomes == [ErrorCode.NONE]


@in_loop
async def test_a_leader_that_missed_another_ones_time_forgets_what_it_knew_of_its_followers(
    tmp_path: Path,
) -> None:
    """The follower has truncated under the other leader; to count what it had before would
    acknowledge records that it lacks.
    """
    cluster = await started(tmp_path)
    outcomes: list[ErrorCode] = []
    cluster.produce([b"a"], outcomes)
    leadership = cluster.leader.partition.leadership
    assert leadership is not None
    for remote in leadership.remotes.values():
        remote.log_end_offset = 1
    cluster.nodes[2].crash()
    cluster.elect(3, (1, 3))
    cluster.nodes[3].obey(cluster.state)
    cluster.elect(1, (1, 3))
    cluster.nodes[1].obey(cluster.state)
    assert outcomes == []
    assert cluster.leader.partition.log.high_watermark == 0


@in_loop
async def test_a_follower_that_stopped_cleanly_is_not_waited_for(tmp_path: Path) -> None:
    """It is out of the ISR and stands where it stood when it stopped, caught up by then."""
    cluster = await started(tmp_path)
    cluster.produce([b"a"])
    await cluster.run()
    cluster.nodes[3].fetchers.close()
    cluster.elect(1, (1, 2))
    cluster.nodes[1].obey(cluster.state)
    cluster.nodes[2].obey(cluster.state)
    outcomes: list[ErrorCode] = []
    cluster.produce([b"b"], outcomes)
    await cluster.run()
    assert outcomes == [ErrorCode.NONE]


async def without_broker_3(tmp_path: Path) -> ReplicaCluster:
    cluster = await started(tmp_path, config=LogConfig(min_insync_replicas=1))
    cluster.nodes[3].crash()
    cluster.elect(1, (1, 2))
    cluster.tell()
    return cluster


async def bring_back_broker_3(cluster: ReplicaCluster) -> None:
    cluster.nodes[3].start()
    cluster.nodes[3].obey(cluster.state)
    cluster.leader.host.set_alive({1, 2, 3})
    await cluster.run(rounds=100, advance_ms=5)


def delete_records(cluster: ReplicaCluster, offset: int) -> None:
    assert cluster.leader.partition.delete_records(offset) == offset


@in_loop
async def test_an_empty_replica_follows_a_log_that_begins_inside_a_batch(tmp_path: Path) -> None:
    cluster = await without_broker_3(tmp_path)
    cluster.produce([b"a", b"b", b"c", b"d", b"e"])
    cluster.produce([b"f"])
    await cluster.run()
    delete_records(cluster, 3)
    cluster.nodes[3].lose_its_disk()
    await bring_back_broker_3(cluster)
    log = cluster.nodes[3].partition.log
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (3, 6, 6)
    assert log.segments[0].base_offset == 0, "where the batch begins"
    assert cluster.nodes[3].bytes_up_to(6) == cluster.leader.bytes_up_to(6)
    assert set(cluster.state.isr) == {1, 2, 3}


@in_loop
async def test_a_log_that_ends_where_the_leaders_begins_gives_way_to_the_batch_around_it(
    tmp_path: Path,
) -> None:
    """Its own records are of another history, and deleted: no divergence is told of them."""
    cluster = await started(tmp_path, config=LogConfig(min_insync_replicas=1))
    for number in (1, 2):
        cluster.nodes[number].crash()
    cluster.elect(3, (3,))
    cluster.tell()
    cluster.produce([b"x", b"y", b"z"])
    cluster.nodes[3].crash()
    for number in (1, 2):
        cluster.nodes[number].start()
    cluster.elect(1, (1, 2))
    cluster.tell()
    cluster.produce([b"a", b"b", b"c", b"d", b"e"])
    await cluster.run()
    delete_records(cluster, 3)
    await bring_back_broker_3(cluster)
    log = cluster.nodes[3].partition.log
    assert (log.log_start_offset, log.log_end_offset) == (3, 5)
    assert values_on(cluster, 3) == values_on(cluster, 1)
    assert set(cluster.state.isr) == {1, 2, 3}


@in_loop
async def test_a_replica_whose_log_goes_on_inside_a_batch_is_not_emptied(tmp_path: Path) -> None:
    """Only records that the leader has deleted may go without a word of a divergence."""
    cluster = await without_broker_3(tmp_path)
    cluster.produce([b"a"])
    cluster.produce([b"b", b"c"])
    await cluster.run()
    follower = cluster.nodes[2].partition
    follower.log.truncate_to(2)
    data = bytearray(cluster.leader.bytes_up_to(3))
    with pytest.raises(UnexpectedAppendOffset):
        follower.append_from_leader(memoryview(data), leader_log_start_offset=0)
    assert values_on(cluster, 2)[0] == b"a"


def once(error: Exception, method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, which fails the first time."""
    errors = [error]

    def call(*args: Any, **kwargs: Any) -> Any:
        if errors:
            raise errors.pop()
        return method(*args, **kwargs)

    return call


UNEXPECTED = (OSError(28, "No space left on device"), AssertionError("a bug"), IndexError())


@pytest.mark.parametrize("error", UNEXPECTED, ids=repr)
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (FollowedPartition, "append"),
        (FollowedPartition, "position"),
        (FollowedPartition, "prepare"),
        (ReplicaFetcher, "_named"),
        (ReplicaFetcher, "_continue_session"),
        (Links, "open_connection"),
    ],
)
@in_loop
async def test_no_error_ends_a_fetcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, error: Exception
) -> None:
    cluster = await started(tmp_path, broker_count=2)
    monkeypatch.setattr(owner, name, once(error, getattr(owner, name)))
    cluster.elect(1)
    cluster.tell()
    for link in list(cluster.links):
        link.break_off()
    outcomes: list[ErrorCode] = []
    for number in range(3):
        cluster.produce([b"%d" % number], outcomes)
        await cluster.run(rounds=100, advance_ms=20)
    assert outcomes == [ErrorCode.NONE] * 3


@pytest.mark.parametrize("error", UNEXPECTED, ids=repr)
@in_loop
async def test_no_error_ends_a_fetcher_that_is_out_of_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    cluster = await without_broker_3(tmp_path)
    cluster.produce([b"a"])
    cluster.produce([b"b"])
    await cluster.run()
    delete_records(cluster, 1)
    monkeypatch.setattr(Link, "call", once(error, Link.call))
    await bring_back_broker_3(cluster)
    assert cluster.nodes[3].partition.log.log_end_offset == 2


@pytest.mark.parametrize("has_epochs", [True, False])
@in_loop
async def test_a_thread_reads_what_a_large_truncation_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_epochs: bool
) -> None:
    monkeypatch.setattr(truncation_walk, "LOOP_BYTES_MAX", 0)
    readers: list[threading.Thread] = []
    scan = SegmentScan.__iter__

    def noted(self: SegmentScan) -> Iterator[SegmentScan]:
        readers.append(threading.current_thread())
        return scan(self)

    cluster = await started(tmp_path)
    cluster.produce([b"kept"])
    await cluster.run()
    cluster.produce([b"lost"])
    cluster.nodes[1].crash()
    cluster.mail.clear()
    cluster.fail_over()
    cluster.tell()
    cluster.produce([b"new"])
    await cluster.run()
    cluster.nodes[1].start()
    log = cluster.nodes[1].partition.log
    if not has_epochs:
        log.epochs.clear()
        log.update_high_watermark(1)
    monkeypatch.setattr(SegmentScan, "__iter__", noted)
    cluster.nodes[1].obey(cluster.state)
    cluster.leader.host.set_alive({1, 2, 3})
    while values_on(cluster, 1) != [b"kept", b"new"]:
        await cluster.run(advance_ms=20)
        await asyncio.sleep(0.001)  # a thread is at work
    assert log.truncations == 1
    assert readers
    assert threading.main_thread() not in readers


@in_loop
async def test_a_truncation_that_fails_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await started(tmp_path)
    cluster.produce([b"kept"])
    await cluster.run()
    cluster.produce([b"lost"])
    cluster.nodes[1].crash()
    cluster.mail.clear()
    cluster.fail_over()
    cluster.tell()
    cluster.produce([b"new"])
    await cluster.run()
    cluster.nodes[1].start()
    failing = once(OSError(28, "No space left on device"), SnapshotFiles.take)
    monkeypatch.setattr(SnapshotFiles, "take", failing)
    cluster.nodes[1].obey(cluster.state)
    cluster.leader.host.set_alive({1, 2, 3})
    await cluster.run(rounds=100, advance_ms=20)
    assert values_on(cluster, 1) == [b"kept", b"new"]


@in_loop
async def test_a_flush_that_fails_does_not_end_the_following(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await started(tmp_path, config=LogConfig(min_insync_replicas=2, flush_messages=1))

    def fail(_: object, log: object, callback: Callable[[OSError], object]) -> None:
        monkeypatch.undo()
        callback(OSError(5, "Input/output error"))

    monkeypatch.setattr(NoFlusher, "flush", fail)
    cluster.produce([b"a"])
    await cluster.run(rounds=100, advance_ms=20)
    leadership = cluster.leader.partition.leadership
    assert leadership is not None
    assert [remote.log_end_offset for remote in leadership.remotes.values()] == [1, 1]


@in_loop
async def test_an_answer_for_many_partitions_is_taken_in_slices_from_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await started(tmp_path, broker_count=2)
    (fetcher,) = cluster.nodes[2].fetchers._fetchers.values()
    (followed,) = fetcher._followed.values()
    fetcher._followed = {(TOPIC_ID, number): followed for number in range(5)}
    taken: list[bytes] = []
    monkeypatch.setattr(fetcher_module, "SLICE_S", 0.0)
    monkeypatch.setattr(
        ReplicaFetcher,
        "_take_row_or_pause",
        lambda self, key, followed, row: taken.append(bytes(row.records)),
    )
    rows = [PartitionData(partition_index=n, records=b"records %d" % n) for n in range(5)]
    answer = FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=rows)])
    frame = bytearray(answer.encode(FETCH_VERSION))

    fetcher._answered(FetchResponse.decode(memoryview(frame), 0, FETCH_VERSION))
    frame[:] = bytes(len(frame))
    assert taken == [b"records 0"]
    assert fetcher._is_under_way, "the next Fetch waits for all of it"
    cluster.clock.advance(ms=0)

    assert taken == [b"records %d" % number for number in range(5)]


@in_loop
async def test_what_is_left_of_an_answer_is_nothing_to_a_new_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await started(tmp_path, broker_count=2)
    (fetcher,) = cluster.nodes[2].fetchers._fetchers.values()
    (followed,) = fetcher._followed.values()
    fetcher._followed[TOPIC_ID, 1] = followed
    taken: list[int] = []
    monkeypatch.setattr(fetcher_module, "SLICE_S", 0.0)
    monkeypatch.setattr(
        ReplicaFetcher,
        "_take_row_or_pause",
        lambda self, key, followed, row: taken.append(row.partition_index),
    )
    rows = [PartitionData(partition_index=n) for n in range(2)]

    fetcher._answered(
        FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=rows)])
    )
    fetcher._start_anew()
    cluster.clock.advance(ms=0)

    assert taken == [0]
