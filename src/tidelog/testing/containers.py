"""A stand-in for the Kafka container of testcontainers: the same calls, and no container.

from tidelog.testing.containers import KafkaContainer   # was: from testcontainers.kafka

with KafkaContainer() as kafka:
    bootstrap = kafka.get_bootstrap_server()

`with_env("KAFKA_...")` sets the key of server.properties that the image makes of it. Ports that are
bound (`with_bind_ports`) are the broker's ports on 127.0.0.1; without one it takes a free port.

What belongs to the image, to Docker or to its networks has no meaning here and is ignored: command,
volumes, networks, strategies of waiting. So are the keys that say where a container listens and who
its controllers are. The broker listens in plain text; a test of TLS or SASL starts a
`tidelog.testing.Broker` with `listeners` of its own.

Not there: `exec`, `get_wrapped_container` and `get_docker_client`, which need a container.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tidelog.testing.broker import Broker

PREFIX: Final = "KAFKA_"
# Where it listens, where its data lies, and who its controllers are.
OF_THE_CONTAINER: Final = re.compile(
    r"(advertised\.)?listeners|(control\.plane|inter\.broker)\.listener\.name|"
    r"listener\.security\.protocol\.map|security\.inter\.broker\.protocol|"
    r"process\.roles|(controller|zookeeper)\..*|(metadata\.)?log\.dirs?"
)
# In the name of a variable of the image.
MEANT_BY_UNDERSCORES: Final = {"_": ".", "__": "-", "___": "_"}


class KafkaContainer:
    """Configured by the `with_` calls, then started by `start` or `with`."""

    def __init__(
        self,
        image: str = "",
        port: int = 9093,
        env: Mapping[str, str] | None = None,
        **_: Any,
    ) -> None:
        self.image = image
        self.port = port
        self.env: dict[str, str] = dict(env or {})
        self._bound: dict[int, int] = {}
        self._broker: Broker | None = None

    # Before it starts

    def with_env(self, key: str, value: str) -> Self:
        self.env[key] = value
        return self

    def with_envs(self, **variables: str) -> Self:
        self.env.update(variables)
        return self

    def with_env_file(self, env_file: str | Path) -> Self:
        for line in Path(env_file).read_text().splitlines():
            key, equals, value = line.strip().removeprefix("export ").partition("=")
            if equals and not key.startswith("#"):
                self.with_env(key.strip(), value.strip().strip("'\""))
        return self

    def with_bind_ports(self, container: str | int, host: str | int | None = None) -> Self:
        self._bound[_number(container)] = 0 if host is None else _number(host)
        return self

    def with_exposed_ports(self, *ports: str | int) -> Self:
        return self

    def with_kraft(self, **_: Any) -> Self:
        return self

    def with_cluster_id(self, cluster_id: str) -> Self:
        return self

    def with_name(self, name: str) -> Self:
        return self

    def with_command(self, command: str | list[str]) -> Self:
        return self

    def with_network(self, network: Any) -> Self:
        return self

    def with_network_aliases(self, *aliases: str) -> Self:
        return self

    def with_volume_mapping(self, host: Any, container: str, mode: str = "ro") -> Self:
        return self

    def with_kwargs(self, **_: Any) -> Self:
        return self

    def waiting_for(self, strategy: Any) -> Self:
        return self

    def maybe_emulate_amd64(self) -> Self:
        return self

    # Its life

    def start(self, timeout: float = 30) -> Self:
        self._broker = Broker({**self._config(), **self._listeners()}).start()
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        if self._broker is not None:
            self._broker.close()
            self._broker = None

    def _config(self) -> dict[str, str]:
        keys = {
            _key(name): str(value) for name, value in self.env.items() if name.startswith(PREFIX)
        }
        return {key: value for key, value in keys.items() if not OF_THE_CONTAINER.fullmatch(key)}

    def _listeners(self) -> dict[str, str]:
        """One for each port of the container that is bound, its own before others."""
        bound = self._bound or {self.port: 0}
        ports = sorted(bound, key=lambda port: port != self.port)
        return {
            "listeners": ",".join(f"{_name(port)}://127.0.0.1:{bound[port]}" for port in ports),
            "listener.security.protocol.map": ",".join(f"{_name(p)}:PLAINTEXT" for p in ports),
            "inter.broker.listener.name": _name(ports[0]),
        }

    # While it runs

    @property
    def _running(self) -> Broker:
        if self._broker is None:
            raise RuntimeError("the broker does not run: call start() first")
        return self._broker

    def get_bootstrap_server(self) -> str:
        return self._running.bootstrap_servers

    def get_container_host_ip(self) -> str:
        return self.get_bootstrap_server().rpartition(":")[0]

    def get_exposed_port(self, port: int) -> int:
        listeners = self._running.listeners
        address = listeners.get(_name(_number(port)), self._running.bootstrap_servers)
        return int(address.rpartition(":")[2])

    def get_logs(self) -> tuple[bytes, bytes]:
        return b"" if self._broker is None else self._broker.log_text().encode(), b""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def _key(variable: str) -> str:
    words = variable.removeprefix(PREFIX).lower()
    return re.sub("_{1,3}", lambda found: MEANT_BY_UNDERSCORES[found[0]], words)


def _number(port: str | int) -> int:
    """Docker also takes "9093/tcp"."""
    return int(str(port).partition("/")[0])


def _name(port: int) -> str:
    return f"PORT_{port}"
