from __future__ import annotations

from tidelog.spark.task_slots import RUNS_MAX, QueryRun, TaskSlots, process_slots


def test_attempts_of_one_batch_never_share_an_id() -> None:
    slots = TaskSlots("q")
    ids = [slots.take(3).transactional_id for _ in range(4)]
    assert len(set(ids)) == 4
    assert all(name.startswith("tidelog-spark-q-") for name in ids)


def test_a_later_batch_takes_the_ids_of_an_earlier_one() -> None:
    slots = TaskSlots("q")
    first = [slots.take(3).transactional_id for _ in range(2)]
    second = [slots.take(4).transactional_id for _ in range(3)]
    assert second[:2] == first
    assert second[2] not in first


def test_a_late_attempt_of_an_earlier_batch_takes_none_of_a_later_one() -> None:
    slots = TaskSlots("q")
    assert slots.take(4) is not slots.take(3)


def test_the_id_of_a_failed_attempt_is_free_at_once() -> None:
    slots = TaskSlots("q")
    failed = slots.take(3)
    slots.failed(failed)
    assert slots.take(3) is failed


def test_runs_of_a_query_share_no_ids() -> None:
    runs = [process_slots(QueryRun("q", f"run-{number}")) for number in range(2)]
    assert runs[0].take(0).transactional_id != runs[1].take(0).transactional_id
    assert process_slots(QueryRun("q", "run-0")) is runs[0]


def test_a_process_forgets_the_runs_it_has_used_least() -> None:
    first = process_slots(QueryRun("q", "first"))
    for number in range(RUNS_MAX):
        process_slots(QueryRun("q", f"other-{number}"))
    assert process_slots(QueryRun("q", "first")) is not first
