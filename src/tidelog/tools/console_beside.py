"""The web console beside a broker, for `tidelog serve --console` and `tidelog dev`.

It is a process of its own, so nothing that it does can hold the broker's loop, and it dies with the
process that started it. It speaks to the broker as any client does, by a listener without TLS: one
that asks nobody who he is where the console is on the loopback interface, else one with SASL, whose
users then log in to the console.
"""

from __future__ import annotations

import logging
import re
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from tidelog.broker_process import ConsoleProcess, ServerProcess
from tidelog.config.broker import BrokerConfig
from tidelog.config.definition import ConfigError
from tidelog.config.listeners import Endpoint
from tidelog.errors import StartupError
from tidelog.tools.child_server import ChildServer
from tidelog.tools.console.settings import PASSWORD_MECHANISMS, ConsoleSettings, parse_listener

LISTENERS: Final = re.compile(r" listeners=(\S+)")
METRICS: Final = re.compile(r" metrics=(\S+)")
STOP_TIMEOUT_S: Final = 10.0

logger = logging.getLogger(__name__)


class ChildConsole(ChildServer):
    """`tidelog console` as one of the processes of `tidelog dev`."""

    def __init__(self, properties: Mapping[str, str], options: Sequence[str]) -> None:
        super().__init__("console", "", None)
        self._properties = properties
        self._options = options

    def _new_process(self) -> ServerProcess:
        return ConsoleProcess(self._properties, *self._options, stderr=subprocess.PIPE)

    def wait_until_ready(self) -> str:
        line = super().wait_until_ready()
        self.address = line.partition(" console=")[2].partition(" ")[0]
        return line


class ConsoleBeside:
    """Of one `tidelog serve`. It is started when the broker serves."""

    def __init__(self, config: BrokerConfig, url: str, *, can_write: bool) -> None:
        """Raises ConfigError where the console could not be, before the broker starts."""
        missing = ConsoleProcess.missing()
        if missing:
            raise ConfigError(
                f"--console: {', '.join(missing)} cannot be imported; "
                "pip install 'tidelog[console]'"
            )
        listener = parse_listener(url)
        self._endpoint = chosen_listener(config.listeners, is_loopback=listener.is_loopback)
        self._properties = client_properties(config, self._endpoint)
        ConsoleSettings(self._properties, listener, can_write).require_safe()
        self._options = ["--listen", url, *(["--write"] if can_write else [])]
        self._console: ChildConsole | None = None

    def start(self, ready_line: str, log_dirs: Sequence[Path], log: IO[str]) -> None:
        """`ready_line` is the broker's: it names the ports."""
        found = LISTENERS.search(ready_line)
        assert found is not None, ready_line
        name = f"{self._endpoint.listener_name}://"
        places = [each.removeprefix(name) for each in found[1].split(",") if each.startswith(name)]
        options = list(self._options)
        metrics = METRICS.search(ready_line)
        if metrics is not None:
            options += ["--metrics", metrics[1]]
        for folder in filter(Path.is_dir, log_dirs):  # a disk may be gone
            options += ["--logs", str(folder)]
        properties = {**self._properties, "bootstrap.servers": ",".join(places)}
        self._console = ChildConsole(properties, options)
        self._console.spawn(log)
        threading.Thread(target=_tell_when_ready, args=(self._console,), daemon=True).start()

    def stop(self) -> None:
        if self._console is not None:
            self._console.stop(STOP_TIMEOUT_S)


def _tell_when_ready(console: ChildConsole) -> None:
    """In a thread: the broker does not wait for its console, nor end with it."""
    try:
        console.wait_until_ready()
    except StartupError as error:
        logger.error("there is no console: %s", error)
    else:
        logger.info("the console serves at %s", console.address)


def chosen_listener(listeners: Sequence[Endpoint], *, is_loopback: bool) -> Endpoint:
    """The listener that the console speaks to; ConfigError where there is none."""
    found = [each for each in listeners if not each.is_encrypted]
    found.sort(key=lambda each: each.needs_sasl == is_loopback)
    if not found:
        raise ConfigError(
            "--console: all listeners want TLS; run `tidelog console --config FILE` with what a "
            "client needs for them"
        )
    return found[0]


def client_properties(config: BrokerConfig, endpoint: Endpoint) -> dict[str, str]:
    """Without the servers, which are known when the broker serves."""
    if not endpoint.needs_sasl:
        return {}
    mechanisms = config.sasl_listeners[endpoint.listener_name].mechanisms
    usable = [each for each in mechanisms if each in PASSWORD_MECHANISMS]
    if not usable:
        raise ConfigError(
            f"--console: {endpoint} takes only {', '.join(mechanisms)}, and the console's users "
            f"log in with one of {', '.join(sorted(PASSWORD_MECHANISMS))}"
        )
    return {"security.protocol": endpoint.security_protocol, "sasl.mechanism": usable[0]}
