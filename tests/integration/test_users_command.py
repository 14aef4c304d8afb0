"""`tidelog user` against a real broker, and `tidelog kafka configs` on the same users."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.conftest import StartBroker
from tests.support.sasl_broker import SaslBroker, start_sasl_broker

TIDELOG = str(Path(sys.executable).parent / "tidelog")


def run(bootstrap: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TIDELOG, *arguments, "-b", bootstrap, "--timeout", "60s"],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def users(broker: SaslBroker) -> list[tuple[str, str, int]]:
    done = run(broker.plain_bootstrap, "user", "list", "-o", "json")
    assert done.returncode == 0, done.stderr
    return [(r["user"], r["mechanism"], r["iterations"]) for r in json.loads(done.stdout)]


def test_users_are_made_changed_listed_and_deleted(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_sasl_broker(start_broker)
    bootstrap = broker.plain_bootstrap
    assert run(bootstrap, "user", "delete", "alice").returncode == 0
    assert users(broker) == []
    tried = run(bootstrap, "user", "set", "carol", "--dry-run", stdin="first\n")
    assert "SCRAM-SHA-256 and SCRAM-SHA-512 would be set" in tried.stderr
    assert users(broker) == []

    made = run(bootstrap, "user", "add", "carol", "--iterations", "8192", stdin="first\n")
    assert made.returncode == 0, made.stderr
    both = [("carol", "SCRAM-SHA-256", 8192), ("carol", "SCRAM-SHA-512", 8192)]
    assert users(broker) == both

    changed = run(
        bootstrap, "user", "set", "carol", "--mechanism", "scram-sha-512", stdin="second\n"
    )
    assert changed.returncode == 0, changed.stderr
    login = tmp_path / "carol.properties"

    def topics(mechanism: str, password: str) -> subprocess.CompletedProcess[str]:
        config = broker.config(mechanism, "carol", password)
        login.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        return run(broker.bootstrap, "topic", "list", "--config", str(login))

    assert topics("SCRAM-SHA-256", "first").returncode == 0
    assert topics("SCRAM-SHA-512", "second").returncode == 0
    refused = topics("SCRAM-SHA-512", "first")
    assert refused.returncode == 1
    assert "due to invalid credentials with SASL mechanism SCRAM-SHA-512" in refused.stderr
    assert "first" not in refused.stderr

    gone = run(bootstrap, "user", "delete", "carol", "--mechanism", "SCRAM-SHA-256")
    assert gone.returncode == 0
    assert users(broker) == [("carol", "SCRAM-SHA-512", 4096)]
    unknown = run(bootstrap, "user", "delete", "nobody")
    assert (unknown.returncode, "does not exist" in unknown.stderr) == (1, True)
    assert run(bootstrap, "user", "set", "carol").returncode == 1, "there is no password"


def test_kafkas_own_commands_work_on_the_same_users(start_broker: StartBroker) -> None:
    broker = start_sasl_broker(start_broker)

    def configs(*arguments: str) -> str:
        done = subprocess.run(
            [
                TIDELOG, "kafka", "configs", "--bootstrap-server", broker.plain_bootstrap,
                "--entity-type", "users", "--entity-name", "dave", *arguments,
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )  # fmt: skip
        return done.stdout

    configs("--alter", "--add-config", "SCRAM-SHA-512=[iterations=4096,password=dave-secret]")
    assert "SCRAM-SHA-512=iterations=4096" in configs("--describe")
    assert ("dave", "SCRAM-SHA-512", 4096) in users(broker)
    configs("--alter", "--delete-config", "SCRAM-SHA-512")
    assert "dave" not in {user for user, _, _ in users(broker)}
