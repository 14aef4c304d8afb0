"""A stand-in for the Kafka container of testcontainers: the same calls, and no container.

from tidelog.testing.containers import KafkaContainer   # was: from testcontainers.kafka

with KafkaContainer() as kafka:
    bootstrap = kafka.get_bootstrap_server()
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from tidelog.testing.broker import Broker


class KafkaContainer:
    """What belongs to the image, the wrapper script or KRaft has no meaning here and is ignored.
    `with_env("KAFKA_...")` sets the key of server.properties that the image makes of it.
    """

    def __init__(self, image: str = "", port: int = 9093, **_: Any) -> None:
        self.image = image
        self.port = port
        self._config: dict[str, str] = {}
        self._broker: Broker | None = None

    def with_env(self, key: str, value: str) -> KafkaContainer:
        if key.startswith("KAFKA_"):
            self._config[key.removeprefix("KAFKA_").lower().replace("_", ".")] = str(value)
        return self

    def with_kraft(self, **_: Any) -> KafkaContainer:
        return self

    def with_cluster_id(self, _: str) -> KafkaContainer:
        return self

    def with_name(self, _: str) -> KafkaContainer:
        return self

    def start(self, timeout: float = 30) -> KafkaContainer:
        self._broker = Broker(self._config).start()
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        if self._broker is not None:
            self._broker.close()
            self._broker = None

    def get_bootstrap_server(self) -> str:
        if self._broker is None:
            raise RuntimeError("the broker does not run: call start() first")
        return self._broker.bootstrap_servers

    def get_container_host_ip(self) -> str:
        return self.get_bootstrap_server().rpartition(":")[0]

    def get_exposed_port(self, port: int) -> str:
        return self.get_bootstrap_server().rpartition(":")[2]

    def get_logs(self) -> tuple[bytes, bytes]:
        return b"" if self._broker is None else self._broker.log_text().encode(), b""

    def __enter__(self) -> KafkaContainer:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
