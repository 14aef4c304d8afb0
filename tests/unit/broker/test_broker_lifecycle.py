"""Registration, session, the question whether this broker is a member, and its stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from tests.support.clock import FakeClock
from tests.support.metadata import in_loop
from tidelog.broker.broker_lifecycle import (
    UNREACHABLE_TRIES_MAX,
    ControlledShutdown,
    Membership,
    MembershipCheck,
)
from tidelog.config.broker import BrokerConfig
from tidelog.config.listeners import Endpoint
from tidelog.controller.cluster.controller_context import BrokerRegistration
from tidelog.controller.metadata_store import (
    NodeExists,
    NoNode,
    SessionState,
    Stat,
    StoreClosed,
    StoreError,
    StoreUnavailable,
)
from tidelog.controller.znodes import decode_broker, encode_broker
from tidelog.errors import ErrorCode, StartupError
from tidelog.protocol.errors import DecodeError
from tidelog.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from tidelog.protocol.messages.controlled_shutdown import (
    ControlledShutdownResponse,
    RemainingPartition,
)

ENDPOINTS = [Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT")]
ELSEWHERE = [Endpoint("PLAINTEXT", "127.0.0.1", 9999, "PLAINTEXT")]
SESSION_TIMEOUT_MS = 6_000


class FakeStore:
    """One node, and a session that ends when the test says so."""

    def __init__(self) -> None:
        self.session_id = 100
        self.zxid = 0
        self.owner: int | None = None
        self.data = b""
        self.failures = 0
        self.failure: type[Exception] = StoreUnavailable
        self._listeners: list[Callable[[SessionState], None]] = []
        self.left_s = SESSION_TIMEOUT_MS / 1000

    def session_left_s(self) -> float:
        return self.left_s

    async def create(self, path: str, data: bytes, *, ephemeral: bool) -> str:
        assert ephemeral
        if self.failures:
            self.failures -= 1
            raise self.failure(path)
        if self.owner is not None:
            raise NodeExists(path)
        self.zxid += 1
        self.owner, self.data = self.session_id, data
        return path

    async def exists(self, path: str) -> Stat | None:
        if self.owner is None:
            return None
        return Stat(self.zxid, self.zxid, 0, 0, 0, 0, 0, self.owner, len(self.data), 0)

    async def get(self, path: str) -> tuple[bytes, Stat]:
        stat = await self.exists(path)
        if stat is None:
            raise NoNode(path)
        return self.data, stat

    async def delete(self, path: str, version: int) -> None:
        assert version == 0
        self.owner = None

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    def tell(self, state: SessionState) -> None:
        for listener in self._listeners:
            listener(state)

    def expire(self) -> None:
        self.owner = None
        self.tell(SessionState.EXPIRED)
        self.session_id += 1


class Stage:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = FakeStore()
        self.membership = Membership(
            1,
            cast(Any, self.store),
            rack="r",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            clock=self.clock,
            timer=self.clock,
        )
        self.cut_off: list[bool] = []
        self.sessions: list[SessionState] = []
        self.membership.on_cut_off(self.cut_off.append)
        self.membership.on_session(self.sessions.append)

    async def join(self, *, clean_shutdown: bool = False) -> None:
        await self.membership.join(ENDPOINTS, clean_shutdown=clean_shutdown, min_insync_replicas=2)

    async def pass_time(self, ms: int) -> None:
        for _ in range(ms // 100):
            self.clock.advance(ms=100)
            await asyncio.sleep(0)
            await asyncio.sleep(0)


@in_loop
async def test_the_broker_epoch_is_that_of_the_registration() -> None:
    stage = Stage()
    stage.store.zxid = 41
    await stage.join(clean_shutdown=True)
    assert stage.membership.broker_epoch == 42
    registered = decode_broker(stage.store.data)
    assert (registered.endpoints, registered.rack) == (tuple(ENDPOINTS), "r")
    assert registered.clean_shutdown


@in_loop
async def test_a_broker_announces_that_it_keeps_strict_min_isr() -> None:
    """KIP-966: the controller keeps eligible replicas only under leaders that do."""
    stage = Stage()
    await stage.join()
    registered = BrokerRegistration.decode(stage.store.data, 1)
    assert registered.keeps_strict_min_isr
    assert registered.min_insync_replicas == 2


@in_loop
async def test_the_registration_of_a_former_life_is_waited_for() -> None:
    stage = Stage()
    stage.store.owner, stage.store.data = 7, encode_broker(ELSEWHERE, timestamp_ms=1)
    joining = asyncio.ensure_future(stage.join())
    await stage.pass_time(3_000)
    assert not joining.done()
    stage.store.owner = None
    await stage.pass_time(300)
    await joining
    assert stage.membership.is_registered


@in_loop
async def test_a_former_life_at_the_same_endpoints_is_surely_over() -> None:
    stage = Stage()
    stage.store.owner, stage.store.data = 7, encode_broker(ENDPOINTS, timestamp_ms=1)
    await stage.join()
    assert stage.store.owner == stage.store.session_id


@in_loop
async def test_an_id_that_a_living_broker_has_is_refused() -> None:
    stage = Stage()
    stage.store.owner, stage.store.data = 7, encode_broker(ELSEWHERE, timestamp_ms=1)
    joining = asyncio.ensure_future(stage.join())
    await stage.pass_time(2 * SESSION_TIMEOUT_MS + 6_000)
    with pytest.raises(StartupError, match=r"broker\.id 1 is taken"):
        await joining


@in_loop
async def test_a_short_loss_of_the_connection_is_nothing() -> None:
    stage = Stage()
    await stage.join()
    stage.store.tell(SessionState.DISCONNECTED)
    await stage.pass_time(SESSION_TIMEOUT_MS // 3 - 100)
    stage.store.tell(SessionState.CONNECTED)
    await stage.pass_time(SESSION_TIMEOUT_MS)
    assert stage.cut_off == []


@in_loop
async def test_a_long_loss_of_the_connection_cuts_the_broker_off_until_it_is_back() -> None:
    stage = Stage()
    await stage.join()
    stage.store.tell(SessionState.DISCONNECTED)
    await stage.pass_time(SESSION_TIMEOUT_MS // 3 + 100)
    assert stage.cut_off == [True]
    stage.store.tell(SessionState.CONNECTED)
    assert stage.cut_off == [True, False]


@in_loop
async def test_a_loss_noticed_when_the_session_may_be_over_cuts_off_at_once() -> None:
    stage = Stage()
    await stage.join()
    assert not stage.membership.may_be_over()
    stage.store.left_s = 0.0
    assert stage.membership.may_be_over(), "before anybody has told"
    stage.store.tell(SessionState.DISCONNECTED)
    assert stage.cut_off == [True]


@in_loop
async def test_a_server_that_is_silent_for_too_long_cuts_off_until_it_is_heard() -> None:
    stage = Stage()
    await stage.join()
    stage.store.left_s = -1.0
    assert stage.membership.may_be_over()
    await stage.pass_time(300)
    assert stage.cut_off == [True]
    stage.store.left_s = 1.0
    await stage.pass_time(300)
    assert stage.cut_off == [True, False]
    assert not stage.membership.may_be_over()


@in_loop
async def test_a_loss_noticed_late_cuts_off_when_the_session_may_be_over() -> None:
    stage = Stage()
    await stage.join()
    stage.store.left_s = 0.5
    stage.store.tell(SessionState.DISCONNECTED)
    await stage.pass_time(400)
    assert stage.cut_off == []
    await stage.pass_time(200)
    assert stage.cut_off == [True]


@in_loop
async def test_an_order_does_not_make_a_broker_without_a_connection_a_member_again() -> None:
    """The session may end the next moment, and this broker would not hear of it."""
    stage = Stage()
    await stage.join()
    stage.store.tell(SessionState.DISCONNECTED)
    await stage.pass_time(SESSION_TIMEOUT_MS // 3 + 100)
    stage.membership.confirmed(stage.membership.broker_epoch)
    await stage.pass_time(SESSION_TIMEOUT_MS)
    assert stage.cut_off == [True]
    stage.store.tell(SessionState.CONNECTED)
    assert stage.cut_off == [True, False]


@in_loop
async def test_after_an_expired_session_it_registers_anew_and_waits_for_an_order() -> None:
    stage = Stage()
    await stage.join()
    old_epoch = stage.membership.broker_epoch
    stage.store.expire()
    assert stage.cut_off == [True]
    stage.membership.confirmed(old_epoch)  # an order for the life before
    assert stage.cut_off == [True]
    stage.store.tell(SessionState.CONNECTED)
    await stage.pass_time(100)
    assert stage.membership.broker_epoch > old_epoch
    assert stage.sessions == [SessionState.EXPIRED, SessionState.CONNECTED]
    assert stage.cut_off == [True]
    stage.membership.confirmed(old_epoch)
    assert stage.cut_off == [True]
    stage.membership.confirmed(stage.membership.broker_epoch)
    assert stage.cut_off == [True, False]


@pytest.mark.parametrize("is_read", [True, False])
@in_loop
async def test_a_crash_is_told_of_again_until_the_controller_has_read_it(is_read: bool) -> None:
    stage = Stage()
    await stage.join(clean_shutdown=False)
    if is_read:
        stage.membership.confirmed(stage.membership.broker_epoch)
    stage.store.expire()
    stage.store.tell(SessionState.CONNECTED)
    await stage.pass_time(100)
    assert decode_broker(stage.store.data).clean_shutdown is is_read


@in_loop
async def test_an_order_may_come_before_the_broker_knows_that_it_is_registered() -> None:
    stage = Stage()
    await stage.join()
    stage.store.expire()
    stage.membership.confirmed(stage.membership.broker_epoch + 1)
    stage.store.tell(SessionState.CONNECTED)
    await stage.pass_time(100)
    assert stage.cut_off == [True, False]


@in_loop
async def test_registering_again_is_tried_until_it_works() -> None:
    stage = Stage()
    await stage.join()
    stage.store.expire()
    stage.store.failures = 3
    stage.store.tell(SessionState.CONNECTED)
    await stage.pass_time(2_000)
    assert stage.membership.is_registered


@pytest.mark.parametrize("failure", [StoreClosed, StoreUnavailable])
@in_loop
async def test_a_session_that_ends_before_the_first_registration_is_followed_by_another(
    failure: type[StoreError],
) -> None:
    stage = Stage()
    stage.store.failure, stage.store.failures = failure, 2
    joining = asyncio.ensure_future(stage.join())
    await stage.pass_time(3_000)
    await joining
    assert stage.membership.is_registered


@in_loop
async def test_a_session_that_ends_again_and_again_is_told_to_who_joins() -> None:
    stage = Stage()
    stage.store.failure, stage.store.failures = StoreClosed, 1_000
    joining = asyncio.ensure_future(stage.join())
    await stage.pass_time(3 * SESSION_TIMEOUT_MS)
    with pytest.raises(StoreClosed):
        await joining


@in_loop
async def test_a_broker_that_stops_does_not_come_back() -> None:
    stage = Stage()
    await stage.join()
    stage.membership.close()
    stage.store.expire()
    stage.store.tell(SessionState.CONNECTED)
    await stage.pass_time(1_000)
    assert stage.store.owner is None


@in_loop
async def test_an_unforeseen_error_does_not_end_the_registering() -> None:
    stage = Stage()
    await stage.join()
    stage.store.expire()
    stage.store.failures = 3
    stage.store.failure = ValueError
    stage.store.tell(SessionState.CONNECTED)
    await stage.pass_time(5_000)
    assert stage.membership.is_registered


class CheckStage:
    def __init__(self, answers: dict[int, ErrorCode | Exception]) -> None:
        self.clock = FakeClock()
        self.answers = answers
        self.epoch = 40
        self.asked: list[tuple[int, int]] = []  # whom, and in which epoch
        self.disowned = 0
        self.check = MembershipCheck(
            1, lambda: self.epoch, lambda: self.answers.keys(), self._ask, self._disown, self.clock
        )

    async def _ask(self, broker_id: int, request: AlterPartitionRequest) -> AlterPartitionResponse:
        assert not request.topics
        self.asked.append((broker_id, request.broker_epoch))
        answer = self.answers[broker_id]
        await asyncio.sleep(0)
        if isinstance(answer, Exception):
            raise answer
        return AlterPartitionResponse(error_code=answer)

    def _disown(self) -> None:
        self.disowned += 1

    async def pass_time(self, ms: int = 0) -> None:
        self.clock.advance(ms=ms)
        for _ in range(10):
            await asyncio.sleep(0)


@in_loop
async def test_the_controller_says_that_others_lead() -> None:
    stage = CheckStage({2: ErrorCode.NOT_CONTROLLER, 3: ErrorCode.STALE_BROKER_EPOCH})
    stage.check.start()
    await stage.pass_time()
    assert stage.asked == [(2, 40), (3, 40)]
    assert stage.disowned == 1
    await stage.pass_time(ms=5_000)
    assert (stage.disowned, len(stage.asked)) == (1, 2)


@in_loop
async def test_nobody_says_so_where_the_session_lives_or_nobody_knows() -> None:
    stage = CheckStage({2: ErrorCode.NONE, 3: ConnectionRefusedError()})
    stage.check.start()
    for _ in range(3):
        await stage.pass_time(ms=500)
    assert stage.disowned == 0
    stage.answers[2] = ErrorCode.STALE_BROKER_EPOCH
    await stage.pass_time(ms=500)
    assert stage.disowned == 1


@in_loop
async def test_an_answer_about_a_former_life_is_none_about_this_one() -> None:
    stage = CheckStage({2: ErrorCode.STALE_BROKER_EPOCH})
    stage.check.start()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    stage.epoch = 50
    stage.answers[2] = ErrorCode.NONE
    await stage.pass_time()
    assert stage.asked == [(2, 40)]
    assert stage.disowned == 0
    stage.check.stop()


@in_loop
async def test_nobody_is_asked_once_it_is_part_of_the_cluster_again() -> None:
    stage = CheckStage({2: ErrorCode.NONE})
    stage.check.start()
    await stage.pass_time()
    stage.check.stop()
    await stage.pass_time(ms=5_000)
    assert len(stage.asked) == 1


@in_loop
async def test_an_answer_that_cannot_be_read_does_not_end_the_asking() -> None:
    stage = CheckStage({2: DecodeError("not an answer")})
    stage.check.start()
    await stage.pass_time()
    stage.answers = {2: ErrorCode.STALE_BROKER_EPOCH}
    await stage.pass_time(ms=1_000)
    assert stage.disowned == 1


DONE = ControlledShutdownResponse()
LEFT = ControlledShutdownResponse(
    remaining_partitions=[RemainingPartition(topic_name="t", partition_index=0)]
)
MOVED = ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER)
Answer = ControlledShutdownResponse | OSError


class ShutdownStage:
    def __init__(self, *answers: Answer) -> None:
        self.clock = FakeClock()
        self.answers = list(answers)
        self.asked = 0
        self.has_others = True
        self._shutdown = ControlledShutdown(
            self._ask,
            lambda: self.has_others,
            BrokerConfig(),
            clock=self.clock,
            timer=self.clock,
        )

    async def _ask(self) -> ControlledShutdownResponse:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, OSError):
            raise answer
        return answer

    async def run(self, leave_after_ms: int = 1 << 30) -> float:
        """The seconds that it took."""
        running = asyncio.ensure_future(self._shutdown.run())
        while not running.done():
            self.clock.advance(ms=100)
            self.has_others = self.clock.monotonic() * 1000 < leave_after_ms
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await running
        return self.clock.monotonic()


@in_loop
async def test_a_handover_that_works_is_asked_for_once() -> None:
    stage = ShutdownStage(DONE)
    await stage.run()
    assert stage.asked == 1


@in_loop
async def test_what_is_left_is_asked_for_again_after_the_back_off() -> None:
    stage = ShutdownStage(LEFT, LEFT, DONE)
    took_s = await stage.run()
    assert stage.asked == 3
    assert 10 <= took_s < 11


@in_loop
async def test_it_gives_up_after_the_retries() -> None:
    stage = ShutdownStage(LEFT)
    await stage.run()
    assert stage.asked == 4


@in_loop
async def test_a_controller_that_moved_or_is_gone_is_looked_for_soon() -> None:
    stage = ShutdownStage(MOVED, ConnectionError("gone"), DONE)
    took_s = await stage.run()
    assert stage.asked == 3
    assert took_s < 1


@in_loop
async def test_it_does_not_look_for_a_controller_for_ever() -> None:
    stage = ShutdownStage(ConnectionError("gone"))
    await stage.run()
    assert stage.asked == UNREACHABLE_TRIES_MAX


@in_loop
async def test_the_last_broker_hands_over_to_nobody() -> None:
    stage = ShutdownStage(LEFT)
    stage.has_others = False
    await stage.run(leave_after_ms=0)
    assert stage.asked == 0


@in_loop
async def test_it_stops_waiting_when_everybody_else_has_left() -> None:
    stage = ShutdownStage(LEFT)
    took_s = await stage.run(leave_after_ms=1_000)
    assert stage.asked == 1
    assert took_s < 2
