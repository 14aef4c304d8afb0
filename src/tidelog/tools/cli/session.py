"""How a command reaches its cluster: the global options, the context, and the clients made of them.

`-b/--bootstrap-server`, `-X key=value`, `--config FILE`, `--context NAME`, `-o FORMAT` and
`--timeout` may stand before a command, before its verb or after it; the last one given holds, and
`-X` adds up. What a later source says replaces what an earlier one says:

    the context  <  --config FILE  <  -X key=value  <  -b, --timeout

A file or a context may hold keys of producers, consumers and admin clients side by side. Each
client gets those it knows. A key that none of the three knows is an error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from tidelog.tools.cli.frame import Command, CommandFailed, Group, KeyValue, Parsed, SectionOption

if TYPE_CHECKING:
    from tidelog.client.blocking.admin import Admin
    from tidelog.client.blocking.consumer import Consumer
    from tidelog.client.blocking.loop_thread import LoopThread
    from tidelog.client.blocking.producer import Producer
    from tidelog.client.errors import ClientError
    from tidelog.config.client import KafkaConfig

DEFAULT_SERVER: Final = "127.0.0.1:9092"
DEFAULT_TIMEOUT_MS: Final = 5_000
SILENCE_MAX_S: Final = 1.0
FORMATS: Final = ("table", "json", "jsonl", "yaml")
UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
BOOTSTRAP: Final = "bootstrap.servers"

Function = TypeVar("Function", bound=Callable[..., Any])
R = TypeVar("R")
Client = TypeVar("Client", bound="Admin | Consumer | Producer")


class Session:
    """What the global options say. One lives as long as a command."""

    def __init__(self) -> None:
        self.bootstrap_server: str | None = None
        self.properties: dict[str, str] = {}
        self.config_file: Path | None = None
        self.context_name: str | None = None
        self.output_format: str | None = None
        self.timeout_given_ms: int | None = None
        self.is_silent = False  # nothing is said about waiting

    @property
    def timeout_ms(self) -> int:
        return DEFAULT_TIMEOUT_MS if self.timeout_given_ms is None else self.timeout_given_ms

    @property
    def timeout_s(self) -> float:
        return self.timeout_ms / 1_000

    def client_properties(self) -> dict[str, str]:
        """Everything that was said about clients, by Kafka's keys."""
        found = {BOOTSTRAP: DEFAULT_SERVER, **self._of_context(), **self._of_file()}
        found.update(self.properties)
        if self.bootstrap_server is not None:
            found[BOOTSTRAP] = self.bootstrap_server
        return found

    def _of_context(self) -> dict[str, str]:
        from tidelog.tools.cli.contexts import Contexts

        contexts = Contexts()
        name = self.context_name or contexts.current()
        return contexts.properties(name) if name is not None else {}

    def _of_file(self) -> dict[str, str]:
        if self.config_file is None:
            return {}
        from tidelog.config.server_properties import load_properties

        return {each.key: each.value for each in load_properties(self.config_file)}

    def admin(self) -> AbstractContextManager[Admin]:
        """For a `with` block; a refusal in the block becomes CommandFailed, with the next step."""
        return self._explained(self.plain_admin())

    def plain_admin(self) -> Admin:
        """Its errors are the client's own."""
        from tidelog.client.blocking.admin import Admin
        from tidelog.config.client import AdminConfig

        admin = Admin(self.settings(AdminConfig, self._time_limits()))
        if self.is_silent:
            return admin
        servers = self.client_properties()[BOOTSTRAP]
        waits = f"{self.timeout_ms} ms for {servers}"
        admin.thread = _Announcing(admin.thread, waits)  # type: ignore[assignment]
        return admin

    def consumer(self, extra: Mapping[str, str] | None = None) -> AbstractContextManager[Consumer]:
        from tidelog.client.blocking.consumer import Consumer
        from tidelog.config.client import ConsumerConfig

        limits = {**self._time_limits(), **(extra or {})}
        return self._explained(Consumer(self.settings(ConsumerConfig, limits)))

    def producer(self, extra: Mapping[str, str] | None = None) -> AbstractContextManager[Producer]:
        from tidelog.client.blocking.producer import Producer
        from tidelog.config.client import ProducerConfig

        limits = {"max.block.ms": str(self.timeout_ms), **(extra or {})}
        return self._explained(Producer(self.settings(ProducerConfig, limits)))

    def _time_limits(self) -> dict[str, str]:
        limit = str(self.timeout_ms)
        return {
            "default.api.timeout.ms": limit,
            "request.timeout.ms": limit,
            "socket.connection.setup.timeout.ms": limit,
        }

    def settings(self, kind: type[KafkaConfig], defaults: Mapping[str, str]) -> dict[str, str]:
        """For one kind of client; what the user says wins over `defaults`."""
        given = {}
        for key, value in self.client_properties().items():
            problem = unknown_key_or_none(key)
            if problem is not None:
                raise CommandFailed(problem)
            if key in kind.TABLE:
                given[key] = value
        return {**defaults, **given}

    @contextmanager
    def _explained(self, client: Client) -> Iterator[Client]:
        from tidelog.client.errors import ClientError

        try:
            with client:
                yield client
        except ClientError as error:
            servers = self.client_properties()[BOOTSTRAP]
            raise CommandFailed(with_next_step(error, servers)) from error


class _Announcing:
    """Runs the calls of an Admin, and says once, on standard error, that one takes a while."""

    def __init__(self, thread: LoopThread, waits: str) -> None:
        self._thread = thread
        self._waits = waits
        self._has_spoken = False

    def run(self, begin: Callable[[], Coroutine[Any, Any, R]], timeout_s: float | None = None) -> R:
        import threading

        timer = threading.Timer(SILENCE_MAX_S, self._speak)
        timer.daemon = True
        timer.start()
        try:
            return self._thread.run(begin, timeout_s)
        finally:
            timer.cancel()

    def _speak(self) -> None:
        if not self._has_spoken:
            self._has_spoken = True
            print(f"tidelog: waiting up to {self._waits}", file=sys.stderr, flush=True)


def unknown_key_or_none(key: str) -> str | None:
    """What is wrong with a key that no client knows; None where one does."""
    from tidelog.config.client import AdminConfig, ConsumerConfig, ProducerConfig

    tables = [kind.TABLE for kind in (AdminConfig, ConsumerConfig, ProducerConfig)]
    if any(key in table for table in tables):
        return None
    nearest = next((found for table in tables if (found := table.nearest(key))), None)
    hint = f"; did you mean {nearest}?" if nearest else ""
    return f"{key} is no setting of Kafka's clients{hint}"


def with_next_step(error: ClientError, servers: str) -> str:
    """Cause and, where one is known, what to do about it."""
    from tidelog.client import errors

    message = str(error).rstrip(".")
    if _is_caused_by(error, errors.ConnectionFailed):
        return f"{message}. Is a broker running at {servers}? -b names another one."
    if isinstance(error, errors.RequestTimedOut):
        return f"{message}. --timeout waits longer."
    if isinstance(error, errors.TlsFailed):
        return f"{message}. -X and --config take the keys of TLS (ssl.*)."
    if isinstance(error, errors.UnknownTopic):
        return f"{message}. `tidelog topic list` shows the topics."
    if isinstance(error, errors.AuthenticationFailed | errors.NotAuthorized):
        return f"{message}. -X and --config take the client's credentials."
    return message


def _is_caused_by(error: BaseException | None, kind: type[BaseException]) -> bool:
    while error is not None:
        if isinstance(error, kind):
            return True
        error = error.__cause__
    return False


def milliseconds(text: str, *, bits: int = 31) -> int:
    """`500`, `500ms`, `5s`, `2m`, `1h` or `7d`; a bare number counts milliseconds. `bits` are those
    of the field that it goes into, without its sign."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = text[len(number) :] or "ms"
    try:
        value = round(float(number) * UNITS_MS[unit])
    except (KeyError, ValueError, OverflowError):
        value = 0
    if value < 1 or value >= 1 << bits:
        raise ValueError(f"{text!r} is no time such as 500ms, 5s or 2m")
    return value


class GlobalOption(SectionOption):
    section = "Global options"


def _bootstrap(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        session_of(ctx).bootstrap_server = value


def _properties(
    ctx: click.Context, param: click.Parameter, value: tuple[tuple[str, str], ...]
) -> None:
    session_of(ctx).properties.update(value or ())


def _config_file(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
    if value is not None:
        session_of(ctx).config_file = value


def _context(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        session_of(ctx).context_name = value


def _output(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        session_of(ctx).output_format = value


def _timeout(ctx: click.Context, param: click.Parameter, value: int | None) -> None:
    if value is not None:
        session_of(ctx).timeout_given_ms = value


def session_of(ctx: click.Context) -> Session:
    found = ctx.find_root().ensure_object(Session)
    ctx.obj = found
    return found


def complete_contexts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from tidelog.tools.cli.contexts import Contexts

    return [name for name in Contexts().names() if name.startswith(incomplete)]


def global_options() -> list[click.Option]:
    return [
        GlobalOption(
            ["-b", "--bootstrap-server"],
            metavar="HOST:PORT",
            expose_value=False,
            callback=_bootstrap,
            help=f"Brokers to ask first, by default those of the context or {DEFAULT_SERVER}.",
        ),
        GlobalOption(
            ["-X", "properties"],
            type=KeyValue(),
            multiple=True,
            metavar="KEY=VALUE",
            expose_value=False,
            callback=_properties,
            help="A setting of Kafka's clients; may be given often.",
        ),
        GlobalOption(
            ["--config", "config_file"],
            type=click.Path(path_type=Path),
            metavar="FILE",
            expose_value=False,
            callback=_config_file,
            help="A client.properties with such settings.",
        ),
        GlobalOption(
            ["--context", "context_name"],
            metavar="NAME",
            expose_value=False,
            callback=_context,
            shell_complete=complete_contexts,
            help="Another context than the current one (see `tidelog context`).",
        ),
        GlobalOption(
            ["-o", "--output", "output_format"],
            type=click.Choice(FORMATS),
            expose_value=False,
            callback=_output,
            help="How to print what is found; a table by default.",
        ),
        GlobalOption(
            ["--timeout"],
            type=Parsed("TIME", milliseconds),
            metavar="TIME",
            expose_value=False,
            callback=_timeout,
            help="How long to wait for brokers: 500ms, 5s, 2m; a bare number is milliseconds. "
            "Default: 5s.",
        ),
    ]


class ClusterCommand(Command):
    """A verb that asks a cluster: it takes the global options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += global_options()


class ClusterGroup(Group):
    """Its verbs take the global options, before their name and after it."""

    command_class = ClusterCommand

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += global_options()


def pass_session(function: Function) -> Function:
    """The first argument is the Session."""
    from functools import update_wrapper

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(session_of(click.get_current_context()), *args, **kwargs)

    return update_wrapper(call, function)  # type: ignore[return-value]
