"""From a request frame to a handler and back.

Whatever does not parse closes the connection, as Kafka does; the one exception is ApiVersions,
which answers an unknown version in its version 0 with UNSUPPORTED_VERSION and the list of what
is served, so that a newer client can step down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.api_table import Api, served
from tidelog.broker.context import CloseConnection, RequestContext
from tidelog.network.connection import Connection, IncomingRequest
from tidelog.pending import Pending
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.errors import DecodeError, UnsupportedApi
from tidelog.protocol.header import RequestHeader, decode_request_header, encode_response_header
from tidelog.supervisor import attempt

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker

DECODED_AT_ONCE_BYTES: Final = 64 * 1024


class RequestDispatcher:
    """The network layer's handler; runs on the broker loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._apis: dict[int, Api] = {
            int(api.key): api for api in served(in_cluster=broker.cluster is not None)
        }
        self._tasks: set[asyncio.Task[None]] = set()
        # Connections that have had to wait, with what they wait for now.
        self._waiting: dict[Connection, set[Pending[Any]]] = {}

    def handle(self, request: IncomingRequest) -> None:
        frame = request.frame
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
        handle = api.handle or api.load()
        if len(frame) > DECODED_AT_ONCE_BYTES and header.api_key != ApiKey.PRODUCE:
            self._decode_apart(request, header, api, bytes(frame))
            return
        try:
            message = api.request.decode(frame, header.body_position, header.api_version)
        except DecodeError as error:
            request.close(f"{api.key.name} v{header.api_version} does not parse: {error}")
            return
        self._answer(
            request,
            header,
            handle(RequestContext(self._broker, request.connection, header), message),
        )

    def _decode_apart(
        self, request: IncomingRequest, header: RequestHeader, api: Api, frame: bytes
    ) -> None:
        """In a thread: thousands of items take longer than the loop may be held. Records are not
        decoded, so a Produce may have any size.
        """

        async def decode_and_answer() -> None:
            try:
                message = await asyncio.get_running_loop().run_in_executor(
                    None,
                    api.request.decode,
                    memoryview(frame),
                    header.body_position,
                    header.api_version,
                )
            except DecodeError as error:
                request.close(f"{api.key.name} v{header.api_version} does not parse: {error}")
                return
            context = RequestContext(self._broker, request.connection, header)
            self._answer(request, header, api.load()(context, message))

        self._begin(request, decode_and_answer())

    def _answer(self, request: IncomingRequest, header: RequestHeader, answer: Any) -> None:
        if type(answer) is Pending:
            self._wait(request, header, answer)
        elif type(answer) is CoroutineType:
            self._run(request, header, answer)
        else:
            self._respond(request, header, answer)

    def _wait(self, request: IncomingRequest, header: RequestHeader, answer: Pending[Any]) -> None:
        connection = request.connection
        waiting = self._waiting.get(connection)
        if waiting is None:
            waiting = self._waiting[connection] = set()
            connection.add_close_callback(self._abandon)

        def answered(response: Any) -> None:
            waiting.discard(answer)
            try:
                self._respond(request, header, response)
            except BaseException:
                request.close("the request failed")
                raise

        def failed() -> None:
            waiting.discard(answer)
            request.close("the request failed")

        if answer.lets_others_pass:
            request.let_others_pass()
        waiting.add(answer)
        answer.then(answered, failed)
        if connection.half_closed:
            self.half_closed(connection)

    def half_closed(self, connection: Connection) -> None:
        """A Fetch has its answer now: the client may be gone, and the fetch may wait for minutes.

        A Produce waits on. It has had its effect, and the answer must tell which.
        """
        for answer in list(self._waiting.get(connection, ())):
            if not answer.lets_others_pass:
                answer.hurry()

    def wake_waiting(self) -> None:
        """At the stop of the broker: let what waits be answered with what there is."""
        for waiting in list(self._waiting.values()):
            for answer in list(waiting):
                attempt("an answer before the stop", answer.hurry)

    def _abandon(self, connection: Connection) -> None:
        for answer in self._waiting.pop(connection, ()):
            attempt("giving up an answer", answer.abandon)

    def _respond(self, request: IncomingRequest, header: RequestHeader, response: Any) -> None:
        if response is None:
            request.respond_nothing()
            return
        if isinstance(response, CloseConnection):
            request.close(response.reason)
            return
        version = header.api_version
        head = encode_response_header(header.correlation_id, header.api_key, version)
        if header.api_key == ApiKey.FETCH:
            request.respond([head, *response.encode_parts(version)])
        else:
            request.respond((head, response.encode(version)))

    def _run(
        self, request: IncomingRequest, header: RequestHeader, work: Coroutine[Any, Any, Any]
    ) -> None:
        """Admin requests that wait for the metadata store; a failure closes the connection."""

        async def answer() -> None:
            self._respond(request, header, await work)

        self._begin(request, answer())

    def _begin(self, request: IncomingRequest, work: Coroutine[Any, Any, None]) -> None:
        def finished(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and task.exception() is not None:
                request.close("the request failed")
                task.get_loop().call_exception_handler(
                    {"message": "request failed", "exception": task.exception(), "task": task}
                )

        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(finished)

    def _refuse(
        self, request: IncomingRequest, api_key: int, version: int, correlation_id: int
    ) -> None:
        if api_key != ApiKey.API_VERSIONS:
            request.close(f"api key {api_key} version {version} is not served")
            return
        from tidelog.broker.handlers.api_versions import unsupported_version

        head = encode_response_header(correlation_id, ApiKey.API_VERSIONS, 0)
        answer = unsupported_version(in_cluster=self._broker.cluster is not None)
        request.respond((head, answer.encode(0)))
