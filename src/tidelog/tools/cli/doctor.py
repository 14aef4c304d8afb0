"""`tidelog doctor`: find mistakes, and say what cures each.

    tidelog doctor                                      this machine, and a broker with defaults
    tidelog doctor --config server.properties           and its settings and directories
    tidelog doctor --bootstrap 127.0.0.1:9092           and the brokers that answer there

Exit codes: 0 healthy, 1 something is wrong, 2 nothing is known to be wrong and a check could not
look. Checks that nobody asked for are named, so that silence is never taken for health.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from tidelog.tools.cli.frame import Command
from tidelog.tools.cli.output import show_data, styled
from tidelog.tools.cli.session import Session, global_options, pass_session
from tidelog.tools.doctor.finding import ERROR, UNCHECKED, Finding, error, unchecked
from tidelog.tools.doctor.machine import Machine, check_machine


class DoctorCommand(Command):
    """Takes the global options, but for --config: that is the broker's file here."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.params += [each for each in global_options() if each.name != "config_file"]


@click.command("doctor", cls=DoctorCommand)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="server.properties of the broker to look at.",
)
@click.option("--kafka-env", is_flag=True, help="Settings come from KAFKA_* variables too.")
@click.option("--bootstrap", metavar="HOST:PORT", help="Brokers to ask; as -b.")
@pass_session
def command(session: Session, config: Path | None, kafka_env: bool, bootstrap: str | None) -> int:
    """Find mistakes in a configuration, a machine, its directories and a cluster."""
    if bootstrap is not None:
        session.bootstrap_server = bootstrap
    findings = list(diagnose(session, config, Machine(), kafka_env=kafka_env))
    left_out = []
    if config is None:
        left_out.append("a server.properties and its directories (--config FILE)")
    if session.bootstrap_server is None:
        left_out.append("a running cluster (--bootstrap HOST:PORT)")
    levels = {finding.level for finding in findings}
    code = 1 if levels - {UNCHECKED} else 2 if levels else 0
    if session.output_format in (None, "table"):
        _show(findings, left_out)
    else:
        data = {
            "healthy": not findings,
            "findings": [finding._asdict() for finding in findings],
            "not_looked_at": left_out,
        }
        show_data(session.output_format, data)
    return code


def diagnose(
    session: Session, path: Path | None, machine: Machine, *, kafka_env: bool = False
) -> Iterator[Finding]:
    """Everything that can be looked at. Nothing is changed anywhere."""
    from tidelog.config.definition import ConfigError
    from tidelog.config.environment import variables
    from tidelog.config.server_properties import load_broker_config

    yield from check_machine(machine)
    config = None
    environment = variables(os.environ, with_kafka=kafka_env)
    if path is not None:
        yield from _file_findings(path)
        try:
            config = load_broker_config(path, environment=environment)
        except ConfigError as problem:
            cure = f"tidelog config validate {path}; unset the variable that is wrong"
            yield unchecked("configuration", path, str(problem), cure)
    if config is not None:
        from tidelog.tools.doctor.configuration import check_configuration
        from tidelog.tools.doctor.directories import check_directories

        yield from check_configuration(config, machine)
        yield from check_directories(config, machine)
    if session.bootstrap_server is not None:
        from tidelog.tools.doctor.cluster import check_cluster

        session.is_silent = True
        with session.plain_admin() as admin:
            yield from check_cluster(admin, session.bootstrap_server, config, machine)


def _file_findings(path: Path) -> Iterator[Finding]:
    from tidelog.config.definition import ConfigError
    from tidelog.config.file_check import check_file

    try:
        problems = check_file(path)
    except ConfigError as problem:
        yield error("configuration", path, str(problem), "name a file that this user can read")
        return
    for line, level, key, message in problems:
        if level == "remark":
            continue
        check = "advertised-wildcard" if "cannot be advertised" in message else "setting"
        cure = f"tidelog config explain {key}" if key else "correct the file"
        if level == "warning":
            cure = f"correct or remove the key {key}"
        yield Finding(level, check, f"{path}:{line}" if line else str(path), message, cure)


def _show(findings: list[Finding], left_out: list[str]) -> None:
    for level, check, subject, problem, cure in findings:
        style = {ERROR: "bad"}.get(level, "warn")
        print(f"{styled(level, style)}: {subject}: {problem} [{check}]")
        print(f"  cure: {cure}")
    if not findings:
        print("Nothing is wrong with what was looked at.")
    for each in left_out:
        print(f"not looked at: {each}", file=sys.stderr)
