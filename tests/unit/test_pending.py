from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable

import pytest

from tests.support.metadata import in_loop
from tidelog.pending import Pending, all_of


class Reader:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.results: list[object] = []
        self.causes: list[BaseException] = []

    def read(self, pending: Pending[int] | Pending[str]) -> Reader:
        pending.then(self.results.append, self.causes.append)
        return self


CAUSE = ZeroDivisionError("a bug")


def raises(_: object) -> int:
    raise CAUSE


class Source:
    """A Pending that keeps what reaches it against the direction of the answer."""

    def __init__(self, *, lets_others_pass: bool = False) -> None:
        self.heard: list[str] = []
        self.pending: Pending[int] = Pending(
            lambda: self.heard.append("abandon"),
            lambda: self.heard.append("hurry"),
            lets_others_pass=lets_others_pass,
        )


class TestThen:
    def test_reader_gets_an_answer_that_comes_later(self) -> None:
        pending: Pending[int] = Pending()
        reader = Reader().read(pending)
        assert reader.results == []
        pending.complete(7)
        assert reader.results == [7]

    def test_reader_gets_an_answer_that_was_there_first(self) -> None:
        pending: Pending[int] = Pending()
        pending.complete(7)
        assert Reader().read(pending).results == [7]

    def test_reader_gets_a_failure_that_comes_later(self) -> None:
        pending: Pending[int] = Pending()
        reader = Reader().read(pending)
        pending.fail(CAUSE)
        assert reader.causes == [CAUSE]

    def test_reader_gets_a_failure_that_was_there_first(self) -> None:
        pending: Pending[int] = Pending()
        pending.fail(CAUSE)
        assert Reader().read(pending).causes == [CAUSE]

    def test_an_exception_of_the_reader_is_told_to_its_failure_path(self) -> None:
        for comes_first in (True, False):
            pending: Pending[int] = Pending()
            causes: list[BaseException] = []
            if comes_first:
                pending.complete(7)
            pending.then(raises, causes.append)
            if not comes_first:
                pending.complete(7)
            assert causes == [CAUSE]

    def test_a_failure_path_that_raises_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        pending: Pending[int] = Pending()
        pending.then(print, raises)
        pending.fail(ValueError("the first bug"))
        assert "a bug" in caplog.text

    def test_there_is_one_reader(self) -> None:
        for settle in (False, True):
            pending: Pending[int] = Pending()
            Reader().read(pending)
            if settle:
                pending.complete(7)
            with pytest.raises(AssertionError):
                Reader().read(pending)


class TestSettling:
    @pytest.mark.parametrize("first", [lambda p: p.complete(7), lambda p: p.fail(CAUSE)])
    @pytest.mark.parametrize("second", [lambda p: p.complete(8), lambda p: p.fail(CAUSE)])
    def test_settling_twice_is_a_bug(
        self, first: Callable[[Pending[int]], None], second: Callable[[Pending[int]], None]
    ) -> None:
        pending: Pending[int] = Pending()
        Reader().read(pending)
        first(pending)
        with pytest.raises(AssertionError):
            second(pending)

    def test_none_is_a_result(self) -> None:
        pending: Pending[None] = Pending()
        assert not pending.is_settled
        pending.complete(None)
        assert pending.is_settled

    def test_a_failure_that_nobody_reads_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        pending: Pending[int] = Pending()
        pending.fail(CAUSE)
        assert caplog.text == ""
        del pending
        assert "nobody heard of a failure: ZeroDivisionError('a bug')" in caplog.text

    def test_a_failure_that_somebody_reads_is_not(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.DEBUG):
            early: Pending[int] = Pending()
            Reader().read(early)
            early.fail(CAUSE)
            late: Pending[int] = Pending()
            late.fail(CAUSE)
            Reader().read(late)
            del early, late
        assert caplog.text == ""

    def test_a_settled_one_holds_neither_its_reader_nor_its_source(self) -> None:
        gc.collect()
        for settle in (lambda p: p.complete(7), lambda p: p.fail(CAUSE)):
            source = Source()
            mapped = source.pending.map(str)
            Reader().read(mapped)
            settle(source.pending)
            assert gc.get_referents(source.pending).count(mapped) == 0
            assert source.pending not in [
                getattr(each, "__self__", None) for each in gc.get_referents(mapped)
            ]

    def test_resolving_with_a_result_completes(self) -> None:
        pending: Pending[int] = Pending()
        pending.resolve(7)
        assert Reader().read(pending).results == [7]

    def test_resolving_with_another_settles_as_that_one_does(self) -> None:
        pending: Pending[int] = Pending()
        source = Source(lets_others_pass=True)
        pending.resolve(source.pending)
        assert pending.lets_others_pass
        pending.hurry()
        pending.abandon()
        assert source.heard == ["hurry", "abandon"]
        source.pending.complete(7)
        assert Reader().read(pending).results == [7]


class TestMap:
    def test_it_gives_the_changed_result(self) -> None:
        pending: Pending[int] = Pending()
        reader = Reader().read(pending.map(str))
        pending.complete(7)
        assert reader.results == ["7"]

    def test_it_changes_a_result_that_was_there_first(self) -> None:
        pending: Pending[int] = Pending()
        pending.complete(7)
        assert Reader().read(pending.map(str)).results == ["7"]

    def test_it_carries_a_failure_along(self) -> None:
        for is_first in (True, False):
            pending: Pending[int] = Pending()
            if is_first:
                pending.fail(CAUSE)
            reader = Reader().read(pending.map(str))
            if not is_first:
                pending.fail(CAUSE)
            assert reader.causes == [CAUSE]

    def test_a_change_that_raises_is_a_failure_of_the_mapped_one(self) -> None:
        pending: Pending[int] = Pending()
        reader = Reader().read(pending.map(raises))
        pending.complete(7)
        assert reader.causes == [CAUSE]

    def test_hurry_and_abandon_reach_the_source(self) -> None:
        source = Source()
        mapped = source.pending.map(str).map(len)
        mapped.hurry()
        mapped.abandon()
        assert source.heard == ["hurry", "abandon"]

    def test_a_settled_source_is_not_disturbed(self) -> None:
        source = Source()
        mapped = source.pending.map(str)
        source.pending.complete(7)
        for pending in (source.pending, mapped):
            pending.hurry()
            pending.abandon()
        assert source.heard == []

    def test_it_lets_others_pass_as_the_source_does(self) -> None:
        assert Source(lets_others_pass=True).pending.map(str).lets_others_pass
        assert not Source().pending.map(str).lets_others_pass


class TestAndThen:
    def test_a_step_may_answer_at_once(self) -> None:
        pending: Pending[int] = Pending()
        reader = Reader().read(pending.and_then(str))
        pending.complete(7)
        assert reader.results == ["7"]

    def test_a_step_may_answer_later(self) -> None:
        first: Pending[int] = Pending()
        second: Pending[str] = Pending()
        reader = Reader().read(first.and_then(lambda _: second))
        first.complete(7)
        assert reader.results == []
        second.complete("then")
        assert reader.results == ["then"]

    def test_each_failure_is_carried_along(self) -> None:
        first: Pending[int] = Pending()
        reader = Reader().read(first.and_then(lambda _: Pending[int]()))
        first.fail(CAUSE)
        assert reader.causes == [CAUSE]
        first, second = Pending[int](), Pending[int]()
        reader = Reader().read(first.and_then(lambda _: second))
        first.complete(7)
        second.fail(CAUSE)
        assert reader.causes == [CAUSE]
        first = Pending()
        reader = Reader().read(first.and_then(raises))
        first.complete(7)
        assert reader.causes == [CAUSE]

    def test_hurry_and_abandon_reach_whichever_is_waited_for(self) -> None:
        first, second = Source(), Source(lets_others_pass=True)
        whole = first.pending.and_then(lambda _: second.pending)
        whole.hurry()
        assert (first.heard, second.heard) == (["hurry"], [])
        assert not whole.lets_others_pass
        first.pending.complete(7)
        whole.abandon()
        assert (first.heard, second.heard) == (["hurry"], ["abandon"])
        assert whole.lets_others_pass


class TestFollowedBy:
    def test_the_action_comes_after_the_reader(self) -> None:
        pending: Pending[int] = Pending()
        seen: list[str] = []
        same = pending.followed_by(lambda result: seen.append(f"then {result}"))
        same.then(lambda result: seen.append(f"read {result}"), print)
        pending.complete(7)
        assert seen == ["read 7", "then 7"]

    def test_an_action_that_raises_is_logged_and_the_answer_stands(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        pending: Pending[int] = Pending()
        reader = Reader().read(pending.followed_by(raises))
        pending.complete(7)
        assert (reader.results, reader.causes) == ([7], [])
        assert "what follows an answer failed: ZeroDivisionError('a bug')" in caplog.text

    def test_a_failure_is_carried_along_and_has_no_action(self) -> None:
        pending: Pending[int] = Pending()
        reader = Reader().read(pending.followed_by(lambda _: pytest.fail("there is no result")))
        pending.fail(CAUSE)
        assert reader.causes == [CAUSE]

    def test_hurry_and_abandon_reach_the_source(self) -> None:
        source = Source()
        same = source.pending.followed_by(print)
        same.hurry()
        same.abandon()
        assert source.heard == ["hurry", "abandon"]


class TestGuard:
    def test_a_step_that_raises_is_the_failure(self) -> None:
        pending: Pending[int] = Pending()
        reader = Reader().read(pending)
        pending.guard(lambda: raises(None))
        assert reader.causes == [CAUSE]

    def test_a_step_that_does_not_leaves_it_open(self) -> None:
        pending: Pending[int] = Pending()
        pending.guard(lambda: None)
        assert not pending.is_settled


class TestAllOf:
    def test_results_come_in_the_order_given_with_the_last(self) -> None:
        one, two, three = Pending[int](), Pending[int](), Pending[int]()
        two.complete(2)
        whole = all_of([one, two, three])
        three.complete(3)
        assert not whole.is_settled
        one.complete(1)
        found: list[list[int]] = []
        whole.then(found.append, print)
        assert found == [[1, 2, 3]]

    def test_none_of_them_is_all_of_them(self) -> None:
        assert all_of([]).is_settled

    def test_the_first_failure_is_that_of_all(self, caplog: pytest.LogCaptureFixture) -> None:
        one, two, three = Pending[int](), Pending[int](), Pending[int]()
        whole = all_of([one, two, three])
        causes: list[BaseException] = []
        whole.then(print, causes.append)
        one.fail(CAUSE)
        two.fail(ValueError("another bug"))
        three.complete(3)
        assert causes == [CAUSE]
        assert "another bug" in caplog.text


class TestAwait:
    @in_loop
    async def test_it_gives_the_result(self) -> None:
        early, late = Pending[int](), Pending[int]()
        early.complete(7)
        assert await early == 7
        asyncio.get_running_loop().call_soon(late.complete, 8)
        assert await late == 8

    @in_loop
    async def test_a_failure_raises_its_cause(self) -> None:
        pending: Pending[int] = Pending()
        asyncio.get_running_loop().call_soon(pending.fail, CAUSE)
        with pytest.raises(ZeroDivisionError, match="a bug"):
            await pending

    @in_loop
    async def test_a_task_that_is_cancelled_abandons_it(self) -> None:
        source = Source()

        async def wait() -> int:
            return await source.pending

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert source.heard == ["abandon"]
        source.pending.complete(7)  # and nothing breaks

    @in_loop
    async def test_a_future_becomes_one(self) -> None:
        async def work(result: int) -> int:
            if not result:
                raise CAUSE
            return result

        loop = asyncio.get_running_loop()
        assert await Pending.of_future(loop.create_task(work(7))) == 7
        with pytest.raises(ZeroDivisionError):
            await Pending.of_future(loop.create_task(work(0)))
        cancelled = loop.create_task(work(7))
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await Pending.of_future(cancelled)
