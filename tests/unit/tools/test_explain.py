"""The engine of `tidelog explain`: facts and events in, findings and a timeline out."""

from __future__ import annotations

from typing import Any

from tidelog.tools.explain.events import Event, event_of, in_order, parsed_time, spelled
from tidelog.tools.explain.explanation import Explanation, Finding, duration
from tidelog.tools.explain.group import GroupFacts, Member, Progress, explain_group
from tidelog.tools.explain.partition import OpenTransaction, PartitionFacts, explain_partition
from tidelog.tools.explain.record import Marker, RecordFacts, explain_record
from tidelog.tools.explain.transaction import TransactionFacts, explain_transaction
from tidelog.types import TopicPartition

PLACE = TopicPartition("orders", 0)
NOW = 1_700_000_000_000


def partition(**changes: object) -> PartitionFacts:
    facts = PartitionFacts(
        PLACE,
        (1, 2, 3),
        1,
        5,
        (1, 2, 3),
        frozenset({1, 2, 3}),
        min_insync_replicas=2,
        log_start_offset=10,
        high_watermark=100,
        last_stable_offset=100,
        log_end_offset=100,
    )
    for name, value in changes.items():
        assert hasattr(facts, name), name
        setattr(facts, name, value)
    return facts


def event(name: str, ago_ms: int = 1_000, broker: int | None = 1, **fields: object) -> Event:
    return Event(NOW - ago_ms, broker, name, {"event": name, **fields})


def of_partition(name: str, ago_ms: int = 1_000, broker: int = 1, **fields: object) -> Event:
    return event(name, ago_ms, broker, partition="orders-0", **fields)


def finding(found: Explanation, cause: str) -> Finding:
    causes = {each.cause: each for each in found.findings}
    assert cause in causes, causes
    return causes[cause]


def causes(found: Explanation) -> list[str]:
    return [each.cause for each in found.findings]


class TestPartition:
    def test_a_healthy_one_has_no_problem(self) -> None:
        found = explain_partition(partition(), [], NOW)
        assert causes(found) == ["leader", "healthy"]
        assert not found.has_problem

    def test_a_new_leader_and_why(self) -> None:
        events = [
            event("brokers-changed", 3_000, 3, gone=[1], come=[]),
            of_partition(
                "leader-elected",
                2_000,
                3,
                was=1,
                leader=2,
                leader_epoch=5,
                isr=[2, 3],
                reason="leader-gone",
            ),
            of_partition("partition-leading", 1_900, 2, leader=2, leader_epoch=5, isr=[2, 3]),
        ]
        facts = partition(leader_id=2, isr=(2, 3), live=frozenset({2, 3}))
        found = explain_partition(facts, events, NOW)
        leads = finding(found, "leader")
        assert leads.why.startswith("broker 1 led before and is gone (the controller missed it at")
        assert leads.since_ms == NOW - 2_000
        assert finding(found, "preferred-leader-gone").next_step.startswith("start broker 1")
        assert finding(found, "replica-gone").since_ms == NOW - 3_000
        assert [each.event for each in found.timeline] == ["brokers-changed", "leader-elected"]

    def test_without_a_controllers_event_a_stop_explains_the_change(self) -> None:
        events = [
            of_partition("partition-leading", 60_000, 1, leader=1, leader_epoch=4, isr=[1, 2, 3]),
            event("broker-stopping", 5_000, 1, signal="SIGTERM"),
            of_partition("partition-leading", 2_000, 2, leader=2, leader_epoch=5, isr=[2, 3]),
        ]
        found = explain_partition(partition(leader_id=2, isr=(2, 3)), events, NOW)
        assert "broker 1 led before and is gone (it was stopped" in finding(found, "leader").why

    def test_a_silent_follower_and_a_slow_one(self) -> None:
        shrink = of_partition(
            "isr-shrinking",
            laggards=[2, 3],
            isr=[1, 2, 3],
            log_end_offset=100,
            lag_time_max_ms=10_000,
            followers={
                "2": {"log_end_offset": 90, "silent_ms": 11_000, "behind_ms": 11_000},
                "3": {"log_end_offset": 40, "silent_ms": 5, "behind_ms": 10_500},
            },
        )
        found = explain_partition(partition(isr=(1,), log_end_offset=120), [shrink], NOW)
        silent = finding(found, "replica-silent")
        assert silent.what == "broker 2 is not in sync"
        assert "it fetched nothing for 11s, 10 records behind" in silent.why
        slow = finding(found, "replica-lags")
        assert slow.what == "broker 3 is not in sync"
        assert "60 records behind: it is too slow" in slow.why
        refused = finding(found, "under-min-isr")
        assert "NOT_ENOUGH_REPLICAS" in refused.why
        assert "records from offset 100 to 119 wait" in refused.why

    def test_one_more_loss_would_stop_producers(self) -> None:
        assert "at-min-isr" in causes(explain_partition(partition(isr=(1, 2)), [], NOW))

    def test_nobody_in_sync_is_left(self) -> None:
        facts = partition(leader_id=-1, isr=(1,), live=frozenset({2, 3}))
        missing = of_partition("leader-missing", 4_000, 3, was=1, isr=[1], reason="leader-gone")
        offline = finding(explain_partition(facts, [missing], NOW), "offline")
        assert "the replicas in sync were 1, and none of them is there" in offline.why
        assert "brokers 2, 3 are there, but may lack records" in offline.why
        assert offline.next_step.startswith("start broker 1. ")
        assert "--unclean loses those records" in offline.next_step
        assert offline.since_ms == NOW - 4_000

    def test_a_replica_in_sync_that_lives_will_be_elected(self) -> None:
        facts = partition(leader_id=-1, isr=(1, 2), live=frozenset({2, 3}))
        assert causes(explain_partition(facts, [], NOW)) == ["leader-being-elected"]

    def test_a_preferred_leader_that_waits_and_one_that_lags(self) -> None:
        waits = explain_partition(partition(leader_id=2), [], NOW)
        assert finding(waits, "preferred-leader-waits").next_step.startswith(
            "tidelog elect orders:0"
        )
        lags = explain_partition(partition(leader_id=2, isr=(2, 3)), [], NOW)
        assert "preferred-leader-lags" in causes(lags)

    def test_an_open_transaction_holds_the_last_stable_offset(self) -> None:
        holder = OpenTransaction(7, 2, 60, NOW - 500, "shop", "Ongoing", NOW - 5_000, 60_000)
        later = holder._replace(producer_id=8, start_offset=70)
        facts = partition(last_stable_offset=60, open_transactions=(later, holder))
        held = finding(explain_partition(facts, [], NOW), "open-transaction")
        assert "producer 7 (epoch 2) of transactional id shop" in held.why
        assert "1 more open behind it" in held.why
        assert held.next_step == (
            "the coordinator aborts it in 55s; sooner: tidelog txn abort --topic orders "
            "--partition 0 --start-offset 60"
        )

    def test_a_hanging_transaction_is_told_from_an_open_one(self) -> None:
        holder = OpenTransaction(7, 2, 60, NOW - 500)
        facts = partition(last_stable_offset=60, open_transactions=(holder,))
        hangs = finding(explain_partition(facts, [], NOW), "hanging-transaction")
        assert "nobody will end it" in hangs.why

    def test_a_topic_made_again_is_not_explained_by_the_one_before(self) -> None:
        leading: dict[str, Any] = {"leader": 1, "isr": [1, 2, 3]}
        events = [
            event("topic-created", 90_000, topic="orders"),
            of_partition("leader-elected", 80_000, 3, leader_epoch=5, reason="unclean", **leading),
            of_partition("isr-shrinking", 70_000, laggards=[2], isr=[1, 2, 3]),
            event("topic-deleted", 60_010, topic="orders"),
            event("topic-removed", 60_000, topic="orders"),
            of_partition("partition-leading", 50_000, leader_epoch=0, **leading),
            event("topic-created", 49_000, topic="orders"),
        ]
        of_others = [event("topic-removed", 10, topic="orders-2"), event("topic-removed", 5)]
        found = explain_partition(partition(leader_epoch=0), [*events, *of_others], NOW)
        assert finding(found, "leader").why == "it is the first leader"
        assert [each.event for each in found.timeline] == ["partition-leading", "topic-created"]
        again = explain_partition(partition(isr=(1, 3)), [*events, *of_others], NOW)
        assert finding(again, "leader").since_ms is None
        assert "no event tells since when" in finding(again, "replica-lags").why


class TestRecord:
    def test_what_was_deleted_from_an_earlier_topic_explains_nothing(self) -> None:
        asked = of_partition(
            "records-deleted", 5_000, from_offset=0, to_offset=50, principal="User:eve"
        )
        gone = event("topic-deleted", 4_000, topic="orders")
        found = explain_record(RecordFacts(partition(), 3), [asked, gone], NOW)
        assert causes(found) == ["deleted"]
        assert found.timeline == []

    def test_one_that_everybody_sees(self) -> None:
        found = explain_record(RecordFacts(partition(), 50, is_there=True), [], NOW)
        assert causes(found) == ["visible"]

    def test_deletions_by_request_and_by_retention(self) -> None:
        asked = of_partition(
            "records-deleted", 5_000, from_offset=0, to_offset=10, principal="User:eve"
        )
        swept = of_partition(
            "segments-deleted", 100, from_offset=0, to_offset=10, reason="retention.ms"
        )
        record = RecordFacts(partition(configs={"retention.ms": "60000"}), 3)
        by_request = explain_record(record, [asked, swept], NOW)
        assert "User:eve" in finding(by_request, "deleted-by-request").why
        by_age = finding(explain_record(record, [swept], NOW), "deleted-by-retention")
        assert by_age.why == "its segment was older than retention.ms=60000"
        untold = finding(explain_record(record, [], NOW), "deleted")
        assert "no event tells who did it" in untold.why

    def test_compaction(self) -> None:
        facts = partition(configs={"cleanup.policy": "compact"})
        record = RecordFacts(facts, 50, is_there=False, next_offset=55)
        cleaned = of_partition("log-cleaned", 700, from_offset=0, to_offset=60)
        gone = finding(explain_record(record, [cleaned], NOW), "compacted")
        assert "the next one is at 55" in gone.what
        assert gone.since_ms == NOW - 700

    def test_a_gap_without_compaction_is_not_called_compaction(self) -> None:
        facts = partition(configs={"cleanup.policy": "delete"})
        found = explain_record(RecordFacts(facts, 50, is_there=False), [], NOW)
        assert causes(found) == ["gap"]

    def test_beyond_the_high_watermark(self) -> None:
        assert causes(explain_record(RecordFacts(partition(), 100), [], NOW)) == ["not-written"]
        written = partition(log_end_offset=120, isr=(1,))
        found = finding(explain_record(RecordFacts(written, 110), [], NOW), "not-replicated")
        assert "1 replicas are in sync where min.insync.replicas=2" in found.why

    def test_an_aborted_one_by_its_producer_or_by_the_timeout(self) -> None:
        record = RecordFacts(
            partition(),
            50,
            is_there=True,
            is_transactional=True,
            producer_id=7,
            is_aborted=True,
            marker=Marker(60, NOW - 1_000, is_commit=False),
        )
        own = finding(explain_record(record, [], NOW), "transaction-aborted")
        assert "the marker is at offset 60" in own.why
        late = event(
            "transaction-timed-out", transactional_id="shop", producer_id=7, timeout_ms=9_000
        )
        other = event("transaction-timed-out", transactional_id="x", producer_id=8, timeout_ms=9)
        found = explain_record(record, [late, other], NOW)
        assert "did not end it within 9s" in finding(found, "transaction-timed-out").why
        assert len(found.timeline) == 1

    def test_behind_an_open_transaction_of_another(self) -> None:
        holder = OpenTransaction(7, 2, 40, NOW - 500, "shop", "Ongoing", NOW - 5_000, 60_000)
        facts = partition(last_stable_offset=40, open_transactions=(holder,))
        found = explain_record(RecordFacts(facts, 50, is_there=True), [], NOW)
        why = finding(found, "open-transaction").why
        assert why.endswith("it lies behind that transaction")

    def test_a_marker(self) -> None:
        marker = Marker(50, NOW, is_commit=True)
        record = RecordFacts(partition(), 50, is_there=True, is_control=True, marker=marker)
        assert "(commit)" in finding(explain_record(record, [], NOW), "control-record").what


class TestTransaction:
    def facts(self, **changes: object) -> TransactionFacts:
        facts = TransactionFacts("shop", True, 1, 7, 3, "CompleteAbort", 60_000)
        for name, value in changes.items():
            assert hasattr(facts, name), name
            setattr(facts, name, value)
        return facts

    def test_aborted_by_its_timeout_or_by_its_producer(self) -> None:
        late = event(
            "transaction-timed-out", transactional_id="shop", producer_id=7, timeout_ms=60_000
        )
        found = explain_transaction(self.facts(), [late], NOW)
        assert causes(found) == ["transaction-timed-out"]
        assert causes(explain_transaction(self.facts(), [], NOW)) == ["aborted-by-producer"]

    def test_fenced_by_a_newer_producer(self) -> None:
        fenced = event(
            "producer-fenced",
            transactional_id="shop",
            producer_id=7,
            producer_epoch=2,
            aborted="True",
        )
        found = explain_transaction(self.facts(), [fenced], NOW)
        assert causes(found) == ["transaction-fenced", "producer-fenced"]
        assert "the epoch is 3 now" in finding(found, "producer-fenced").why

    def test_open_and_being_ended(self) -> None:
        opened = self.facts(
            state="Ongoing",
            started_ms=NOW - 10_000,
            partitions=(PLACE,),
            start_offsets={PLACE: 60},
        )
        step = finding(explain_transaction(opened, [], NOW), "open-transaction").next_step
        assert step.startswith("the coordinator aborts it in 50s; sooner: tidelog txn abort")
        stuck = self.facts(state="PrepareCommit", partitions=(PLACE,), leaderless=(PLACE,))
        ending = finding(explain_transaction(stuck, [], NOW), "transaction-ending")
        assert ending.next_step == "tidelog explain partition orders 0"

    def test_an_id_that_nobody_knows(self) -> None:
        found = explain_transaction(TransactionFacts("x", False), [], NOW)
        assert causes(found) == ["unknown-transactional-id"]


class TestGroup:
    def facts(self, **changes: object) -> GroupFacts:
        members = (Member("m1", "app", "10.0.0.1", (PLACE,)),)
        progress = {PLACE: Progress(100, 0, 100)}
        facts = GroupFacts("billing", "Stable", "classic", 1, members, progress)
        for name, value in changes.items():
            assert hasattr(facts, name), name
            setattr(facts, name, value)
        return facts

    def began(self, reason: str, ago_ms: int = 1_000) -> Event:
        return event("rebalance-began", ago_ms, group="billing", generation=1, reason=reason)

    def test_a_healthy_one(self) -> None:
        assert causes(explain_group(self.facts(), [], NOW)) == ["healthy"]

    def test_a_member_that_fell_silent_is_named_though_others_join(self) -> None:
        events = [
            self.began("join-left-7 left: its session timed out", 3_000),
            self.began("m2 joins", 2_000),
            self.began("m3 joins", 1_000),
        ]
        found = finding(explain_group(self.facts(), events, NOW), "member-silent")
        assert found.what.startswith("the group rebalanced 3 times")
        assert "join-left-7 left: its session timed out" in found.why

    def test_members_that_come_and_go(self) -> None:
        events = [
            self.began("m2 joins", 3_000),
            self.began("m2 left: it left", 2_000),
            self.began("m3 joins"),
        ]
        found = finding(explain_group(self.facts(), events, NOW), "member-joined")
        assert "2 x member-joined, 1 x member-left" in found.what

    def test_a_member_that_polls_too_rarely(self) -> None:
        reason = "m1 left: consumer poll timeout has expired."
        found = explain_group(self.facts(), [self.began(reason)], NOW)
        assert "max.poll.records" in finding(found, "member-polls-too-rarely").next_step

    def test_a_group_of_the_consumer_protocol_has_epochs(self) -> None:
        raised = [
            event("group-epoch-raised", ago, group="billing", epoch=epoch, members=2, reason=reason)
            for ago, epoch, reason in (
                (4_000, 7, "topics changed: orders"),
                (3_000, 8, "m2 left: its session timed out"),
                (2_000, 9, "m3 joins"),
                (1_000, 10, "a pattern stands for other topics"),
            )
        ]
        left = event("members-left", 3_001, group="billing", members="m2", reason="timed out")
        found = explain_group(self.facts(type="consumer"), [left, *raised], NOW)
        silent = finding(found, "member-silent")
        assert silent.what.startswith("the group rebalanced 4 times")
        assert "2 x topics-changed" in silent.what
        assert [each.text for each in found.timeline] == [
            "members left: m2: timed out",
            "epoch 7 began, 2 members: topics changed: orders",
            "epoch 8 began, 2 members: m2 left: its session timed out",
            "epoch 9 began, 2 members: m3 joins",
            "epoch 10 began, 2 members: a pattern stands for other topics",
        ]
        topics = explain_group(self.facts(), [raised[0], raised[3], raised[3]], NOW)
        assert "got partitions" in finding(topics, "topics-changed").why

    def test_an_old_rebalance_is_no_finding(self) -> None:
        old = self.began("m1 left: its session timed out", 3_600_000)
        found = explain_group(self.facts(), [old], NOW)
        assert causes(found) == ["healthy"]
        assert len(found.timeline) == 1

    def test_a_rebalance_under_way(self) -> None:
        facts = self.facts(state="PreparingRebalance")
        found = explain_group(facts, [self.began("m2 joins")], NOW)
        assert finding(found, "member-joined").why == "m2 joins"

    def test_members_that_commit_nothing_and_one_that_works(self) -> None:
        never = self.facts(progress={PLACE: Progress(None, 0, 100)})
        assert (
            "has committed nothing" in finding(explain_group(never, [], NOW), "commits-nothing").why
        )
        stuck = self.facts(progress={PLACE: Progress(40, 0, 100, 40)}, interval_ms=2_000)
        found = finding(explain_group(stuck, [], NOW), "commits-nothing")
        assert "committed nothing for 2s" in found.why
        works = self.facts(progress={PLACE: Progress(60, 0, 100, 40)}, interval_ms=2_000)
        found = finding(explain_group(works, [], NOW), "catching-up")
        assert "it committed 20 records in 2s" in found.why

    def test_nobody_is_there_or_nobody_is_assigned(self) -> None:
        progress = {PLACE: Progress(40, 0, 100)}
        empty = self.facts(state="Empty", members=(), progress=progress)
        assert causes(explain_group(empty, [], NOW)) == ["no-members"]
        other = (Member("m1", "app", "10.0.0.1", ()),)
        found = explain_group(self.facts(members=other, progress=progress), [], NOW)
        assert causes(found) == ["not-assigned"]

    def test_records_deleted_before_they_were_read(self) -> None:
        found = explain_group(self.facts(progress={PLACE: Progress(40, 60, 60)}), [], NOW)
        assert finding(found, "committed-offset-deleted").why.startswith("20 records were deleted")

    def test_no_such_group(self) -> None:
        found = explain_group(GroupFacts("billing", None), [], NOW)
        assert causes(found) == ["no-such-group"]


class TestEvents:
    def test_logfmt_and_json_say_the_same(self) -> None:
        logfmt = event_of(
            'time=2026-11-18T08:00:00.123Z level=info logger=x msg="a \\"b\\"\\n" '
            'event=isr-changed partition=orders-0 isr="[1, 2]"'
        )
        line = (
            '{"time":"2026-11-18T08:00:00.123Z","event":"isr-changed","partition":"orders-0",'
            '"isr":[1,2]}'
        )
        from_json = event_of(line)
        assert logfmt is not None
        assert from_json is not None
        assert logfmt.numbers("isr") == from_json.numbers("isr") == (1, 2)
        assert logfmt.at_ms == from_json.at_ms
        assert logfmt.text("msg") == 'a "b"\n'
        assert spelled(logfmt.at_ms) == "2026-11-18T08:00:00.123Z"

    def test_labels_name_the_broker(self) -> None:
        line = "broker=2 time=2026-11-18T08:00:00.123Z level=info event=controller-elected epoch=1"
        found = event_of(line)
        assert found is not None
        assert found.broker_id == 2

    def test_lines_of_others_are_passed_over(self) -> None:
        for line in (
            "",
            "Traceback (most recent call last): event",
            '{"event": "x"',
            '{"event": 7, "time": "2026-11-18T08:00:00.123Z"}',
            '{"event": "x", "time": "yesterday"}',
            "time=2026-11-18T08:00:00.123Z event",
            "[" * 70_000 + "event",
            '{"event":' + "[" * 50_000,
        ):
            assert event_of(line) is None
        assert parsed_time("2026-99-18T08:00:00.123Z") is None

    def test_epochs_order_what_clocks_cannot(self) -> None:
        ahead = of_partition("partition-leading", -5_000, 1, leader=1, leader_epoch=4)
        behind = of_partition("partition-leading", 0, 2, leader=2, leader_epoch=5)
        assert in_order([behind, ahead, behind]) == [ahead, behind]

    def test_durations(self) -> None:
        told = [duration(each) for each in (40, 12_000, 3_900_000, 90_000_000, -5)]
        assert told == ["40ms", "12s", "1h 5m", "1d 1h", "0ms"]
