"""From a request frame to a handler and back.

A request takes these steps, in this order:

    authenticate    whether this client may ask at all (`security/authentication.py`), where its
                    listener wants to know; it sees the bare frame, which may be no request
    decode          its header, and which API it is for
    recall          a Metadata answer that was kept; not if there is an authorizer
    decode          its message
    handle          the handler of the API; it asks the authorizer for each resource it touches
    throttle        where a quota is set: the answer says how long the client has to wait, and its
                    connection is not read for that long (`quotas/client_quotas.py`)
    encode          `respond`

While a quota is set, a Charge goes with each request, and nothing is recalled. The requests of each
API are counted and timed here (`observation/request_metrics.py`), and the errors of all answers but
those of Produce and Fetch, which count their own.

A handler answers at once, or returns a `Pending`, or a coroutine, of which `_run` makes a Pending.
A request whose answer fails closes its connection, and the cause is logged.

Whatever does not parse closes the connection, as Kafka does; the one exception is ApiVersions,
which answers an unknown version in its version 0 with UNSUPPORTED_VERSION and the list of what
is served, so that a newer client can step down.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from tidelog.broker.api_table import Api
from tidelog.broker.context import (
    Answer,
    ClientConnection,
    CloseConnection,
    RequestContext,
    Response,
)
from tidelog.broker.metadata_answers import MetadataAnswers, Question
from tidelog.broker.observation.error_counts import COUNTED_BY_HANDLER, count_errors
from tidelog.broker.observation.request_metrics import ApiMetrics
from tidelog.broker.quotas.client_quotas import Charge
from tidelog.broker.security.authentication import Authentication
from tidelog.network.channel import SendTime
from tidelog.pending import Pending
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.errors import DecodeError, UnsupportedApi
from tidelog.protocol.header import RequestHeader, decode_request_header, encode_response_header
from tidelog.protocol.message import Message, RecordsMessage
from tidelog.supervisor import attempt

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.network.channel import Part

logger = logging.getLogger(__name__)

DECODED_AT_ONCE_BYTES: Final = 64 * 1024
METADATA: Final = int(ApiKey.METADATA)
NOT_TIMED: Final = -1.0
# They wait because the client asked for it.
WAITING: Final = frozenset((int(ApiKey.FETCH), int(ApiKey.JOIN_GROUP), int(ApiKey.SYNC_GROUP)))


class Request(Protocol):
    """What the dispatcher does with a network.connection.IncomingRequest."""

    @property
    def frame(self) -> memoryview: ...
    @property
    def connection(self) -> ClientConnection: ...
    @property
    def received_at(self) -> float: ...
    def let_others_pass(self) -> None: ...
    def respond(self, parts: Sequence[Part], send_time: SendTime | None = None) -> None: ...
    def respond_nothing(self) -> None: ...
    def close(self, reason: str) -> None: ...
    def refuse_client(self, parts: Sequence[Part]) -> None: ...


class RequestDispatcher:
    """The network layer's handler; runs on the broker loop."""

    def __init__(
        self, broker: Broker, apis: Iterable[Api], *, recalls_metadata: bool = True
    ) -> None:
        self._broker = broker
        self._authentication = Authentication(broker)
        self._apis: dict[int, Api] = {int(api.key): api for api in apis}
        self._metrics: list[ApiMetrics] = [  # of each api key
            broker.request_metrics.of(key) for key in range(max(ApiKey) + 1)
        ]
        self._monotonic = broker.clock.monotonic
        slow_ms = broker.config.get_int("tidelog.slow.request.log.ms")
        self._slow_s = slow_ms / 1000 if slow_ms else float("inf")
        self._recalls_metadata = recalls_metadata
        self._metadata_answers = MetadataAnswers(broker.metadata)
        self._limits = broker.dynamic_config.quota_limits
        self._tasks: set[asyncio.Task[Answer]] = set()
        # Connections that have had to wait, with what they wait for now, and the api key of each.
        self._waiting: dict[ClientConnection, dict[Pending[Answer], int]] = {}

    def handle(self, request: Request) -> None:
        frame = request.frame
        authenticator = request.connection.session.authenticator
        if authenticator is not None and not self._authentication.admits(request, authenticator):
            return
        try:
            header = decode_request_header(frame)
        except UnsupportedApi as unsupported:
            self._refuse(
                request, unsupported.api_key, unsupported.api_version, unsupported.correlation_id
            )
            return
        except DecodeError as error:
            request.close(f"bad request header: {error}")
            return
        api = self._apis.get(header.api_key)
        if api is None or not api.min_version <= header.api_version <= api.max_version:
            self._refuse(request, header.api_key, header.api_version, header.correlation_id)
            return
        metrics = self._metrics[header.api_key]
        began = self._monotonic() if metrics.begin(header.api_version) else NOT_TIMED
        context = RequestContext(self._broker, request.connection, header)
        charge: Charge | None = None
        if self._limits.binds_clients:
            charge = context.charge = Charge(self._broker.quotas, context, len(frame))
        if len(frame) > DECODED_AT_ONCE_BYTES and header.api_key != ApiKey.PRODUCE:
            decoded = self._decode_apart(api, context, bytes(frame))
            self._wait(request, header, decoded, charge, metrics, began)
            return
        question: Question | None = None
        if (
            header.api_key == METADATA
            and self._recalls_metadata
            and self._broker.authorizer is None
            and charge is None
        ):
            body = frame[header.body_position :].tobytes()
            question = (header.api_version, context.session.listener_name, body)
            kept = self._metadata_answers.get(question)
            if kept is not None:
                self.respond(request, header, kept, None, metrics, began)
                return
        try:
            message = api.decode(frame, header.body_position, header.api_version)
        except DecodeError as error:
            request.close(_does_not_parse(header, error))
            return
        answer = self._handle(api, context, message)
        if question is not None:
            answer = self._metadata_answers.maybe_keep(question, answer)
        if type(answer) is Pending:
            self._wait(request, header, answer, charge, metrics, began)
        else:
            self.respond(request, header, answer, charge, metrics, began)

    def _handle(
        self, api: Api, context: RequestContext, message: Message
    ) -> Answer | Pending[Answer]:
        answer = api.handle(context, message)
        if isinstance(answer, Message) or type(answer) is Pending:
            return answer  # as most are: the check for a coroutine is slow
        if isinstance(answer, Coroutine):  # a compiled handler's has a type of its own
            charge = context.charge
            return self._run(answer if charge is None else charge.timed(answer))
        return answer

    def _decode_apart(self, api: Api, context: RequestContext, frame: bytes) -> Pending[Answer]:
        """In a thread: thousands of items take longer than the loop may be held. Records are not
        decoded, so a Produce may have any size.
        """
        api.load()
        decoded = asyncio.get_running_loop().run_in_executor(
            None, _decode_or_close, api, context.header, memoryview(frame)
        )

        def handle(message: Message | CloseConnection) -> Answer | Pending[Answer]:
            if isinstance(message, CloseConnection):
                return message
            return self._handle(api, context, message)

        return Pending.of_future(decoded).and_then(handle)

    def _run(self, work: Coroutine[Any, Any, Answer]) -> Pending[Answer]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return Pending.of_future(task)

    def _wait(
        self,
        request: Request,
        header: RequestHeader,
        answer: Pending[Answer],
        charge: Charge | None,
        metrics: ApiMetrics,
        began: float,
    ) -> None:
        connection = request.connection
        waiting = self._waiting.get(connection)
        if waiting is None:
            waiting = self._waiting[connection] = {}
            connection.add_close_callback(self._abandon)

        if answer.lets_others_pass:
            request.let_others_pass()
        waiting[answer] = header.api_key
        if charge is not None:
            charge.pause()
        waits_since = NOT_TIMED
        if began != NOT_TIMED:
            waits_since = self._monotonic()
        wait = _Wait(self, waiting, request, header, answer, charge, metrics, began, waits_since)
        answer.then(wait.answered, wait.failed)
        if connection.half_closed:
            self.half_closed(connection)

    def half_closed(self, connection: ClientConnection) -> None:
        """A Fetch has its answer now: the client may be gone, and the fetch may wait for minutes.

        A Produce waits on. It has its effect all the same, and the answer must tell which.
        """
        for answer in list(self._waiting.get(connection, ())):
            if not answer.lets_others_pass:
                answer.hurry()

    def waiting_by_api(self) -> Counter[int]:
        """How many requests of each api key wait for their answer."""
        counts: Counter[int] = Counter()
        for waiting in self._waiting.values():
            counts.update(waiting.values())
        return counts

    def wake_waiting(self) -> None:
        """At the stop of the broker: let what waits be answered with what there is."""
        self._authentication.end_delays()
        for waiting in list(self._waiting.values()):
            for answer in list(waiting):
                attempt("an answer before the stop", answer.hurry)

    def _abandon(self, connection: ClientConnection) -> None:
        for answer in self._waiting.pop(connection, ()):
            attempt("giving up an answer", answer.abandon)

    def respond(
        self,
        request: Request,
        header: RequestHeader,
        response: Answer,
        charge: Charge | None,
        metrics: ApiMetrics,
        began: float,
        waits_since: float = NOT_TIMED,
    ) -> None:
        if isinstance(response, CloseConnection):
            request.close(response.reason)
            return
        if charge is not None:
            charge.settle(response)
        parts = _encoded(header, response)
        if charge is not None:
            charge.finish(header.api_key, sum(map(len, parts)))
            if charge.throttle_ms:
                request.connection.mute(charge.throttle_ms / 1000)
                self._tell(
                    "client throttled",
                    "client-throttled",
                    request,
                    header,
                    {"throttle_ms": charge.throttle_ms},
                )
        send_time: SendTime | None = None
        if began != NOT_TIMED:
            answered_at = self._monotonic()
            metrics.queue.add(began - request.received_at)
            if waits_since == NOT_TIMED:
                metrics.local.add(answered_at - began)
            else:
                metrics.local.add(waits_since - began)
                metrics.remote.add(answered_at - waits_since)
            send_time = SendTime(metrics.send.add, answered_at)
        if response is None:
            request.respond_nothing()
        else:
            request.respond(parts, send_time)
        total_s = self._monotonic() - request.received_at
        metrics.total.add(total_s)
        if total_s >= self._slow_s and header.api_key not in WAITING:
            self._tell_slow(request, header, total_s)
        if header.api_key not in COUNTED_BY_HANDLER:
            count_errors(metrics, header.api_key, response)

    def _tell_slow(self, request: Request, header: RequestHeader, total_s: float) -> None:
        self._tell(
            "slow request", "slow-request", request, header, {"total_ms": round(total_s * 1000)}
        )

    def _tell(
        self,
        what: str,
        event: str,
        request: Request,
        header: RequestHeader,
        details: dict[str, object],
    ) -> None:
        session = request.connection.session
        logger.info(
            what,
            extra={
                "event": event,
                "request": ApiKey(header.api_key).name,
                "version": header.api_version,
                **details,
                "principal": str(session.principal),
                "client_id": header.client_id,
                "client": f"{session.client_host}:{session.client_port}",
            },
        )

    def _refuse(self, request: Request, api_key: int, version: int, correlation_id: int) -> None:
        if api_key != ApiKey.API_VERSIONS:
            request.close(f"api key {api_key} version {version} is not served")
            return
        from tidelog.broker.handlers.api_versions import unsupported_version

        head = encode_response_header(correlation_id, ApiKey.API_VERSIONS, 0)
        answer = unsupported_version(self._broker)
        request.respond((head, answer.encode(0)))


class _Wait:
    """A request whose answer comes later."""

    __slots__ = (
        "_answer",
        "_began",
        "_charge",
        "_dispatcher",
        "_header",
        "_metrics",
        "_request",
        "_waiting",
        "_waits_since",
    )

    def __init__(
        self,
        dispatcher: RequestDispatcher,
        waiting: dict[Pending[Answer], int],
        request: Request,
        header: RequestHeader,
        answer: Pending[Answer],
        charge: Charge | None,
        metrics: ApiMetrics,
        began: float,
        waits_since: float,
    ) -> None:
        self._dispatcher = dispatcher
        self._waiting = waiting
        self._request = request
        self._header = header
        self._answer = answer
        self._charge = charge
        self._metrics = metrics
        self._began = began
        self._waits_since = waits_since

    def answered(self, response: Answer) -> None:
        self._waiting.pop(self._answer, None)
        if self._charge is not None:
            self._charge.resume()
        self._dispatcher.respond(
            self._request,
            self._header,
            response,
            self._charge,
            self._metrics,
            self._began,
            self._waits_since,
        )

    def failed(self, cause: BaseException) -> None:
        self._waiting.pop(self._answer, None)
        if isinstance(cause, Exception):  # not when the broker stops
            header = self._header
            name = ApiKey(header.api_key).name
            logger.error("%s v%d failed: %r", name, header.api_version, cause, exc_info=cause)
        self._request.close("the request failed")


def _encoded(header: RequestHeader, response: Response | None) -> Sequence[Part]:
    if response is None:
        return ()
    version = header.api_version
    head = encode_response_header(header.correlation_id, header.api_key, version)
    if isinstance(response, RecordsMessage):
        return [head, *response.encode_parts(version)]
    return (head, response.encode(version))


def _decode_or_close(
    api: Api, header: RequestHeader, frame: memoryview
) -> Message | CloseConnection:
    try:
        return api.decode(frame, header.body_position, header.api_version)
    except DecodeError as error:
        return CloseConnection(_does_not_parse(header, error))


def _does_not_parse(header: RequestHeader, error: DecodeError) -> str:
    return f"{ApiKey(header.api_key).name} v{header.api_version} does not parse: {error}"
