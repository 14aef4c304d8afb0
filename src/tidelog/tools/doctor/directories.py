"""Mistakes that the directories of log.dirs show. Nothing is changed in them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tidelog.config.broker import BrokerConfig
from tidelog.controller.journal import JOURNAL_NAME, SNAPSHOT_NAME
from tidelog.errors import StartupError
from tidelog.log.directory.log_directory import CLEAN_MARKER_FILE, LOCK_FILE
from tidelog.log.directory.meta_properties import read_meta_properties
from tidelog.tools.cli.output import human_bytes
from tidelog.tools.doctor.finding import Finding, error, unchecked, warning
from tidelog.tools.doctor.machine import Machine

FULL: Final = 0.02  # of the disk is free, or less
NEARLY_FULL: Final = 0.10
FUTURE_S: Final = 300.0  # clocks of a file server may be a little ahead
TELLING_OF_RETENTION: Final = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")


def check_directories(config: BrokerConfig, machine: Machine) -> Iterator[Finding]:
    for path in config.log_dirs:
        if not path.exists():
            yield from check_parent(path, machine)
            continue
        try:
            yield from check_directory(path, config, machine)
        except OSError as problem:
            yield unchecked(
                "directory",
                path,
                f"it cannot be looked into: {problem.strerror}",
                f"run tidelog doctor as the broker's user, or chmod -R u+rwX {path}",
            )
    yield from check_identities(config)


def check_parent(path: Path, machine: Machine) -> Iterator[Finding]:
    """A directory that the first start will make."""
    parent = next(each for each in path.absolute().parents if each.exists())
    if not os.access(parent, os.W_OK | os.X_OK):
        yield error(
            "directory-not-writable",
            path,
            f"it does not exist, and {parent} does not let this user make it",
            f"install -d -o USER {path}, as root, with the broker's user",
        )
    yield from check_room(path, parent, machine)


def check_directory(path: Path, config: BrokerConfig, machine: Machine) -> Iterator[Finding]:
    owner = path.stat().st_uid
    if owner != machine.user_id() and machine.user_id() != 0:
        yield error(
            "directory-owner",
            path,
            f"it belongs to the user {owner}, and this is the user {machine.user_id()}",
            f"chown -R {machine.user_id()} {path}, as root, or run as its owner",
        )
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        yield error(
            "directory-not-writable",
            path,
            "this user may not write it",
            f"chmod u+rwx {path}, or mount the disk for writing",
        )
    yield from check_room(path, path, machine)
    is_locked = _is_locked(path / LOCK_FILE)
    if is_locked:
        yield warning(
            "directory-locked",
            path,
            "a running process holds .lock: a second broker cannot start on it",
            f"nothing, if that is your broker; fuser {path / LOCK_FILE} names the process",
        )
    logs = [each for each in path.iterdir() if each.is_dir() and _is_log(each.name)]
    if logs and not is_locked and not (path / CLEAN_MARKER_FILE).exists():
        yield warning(
            "unclean-shutdown",
            path,
            "the last stop was not clean; the next start will recover every log, which takes time",
            f"nothing, or look first: tidelog verify-log {path}",
        )
    yield from check_times(path, logs, machine)
    yield from check_adoption(path, logs, config, machine)


def check_room(path: Path, existing: Path, machine: Machine) -> Iterator[Finding]:
    total, free = machine.room(existing)
    if total <= 0:
        yield unchecked("disk", path, "the file system does not tell its size", f"df {existing}")
        return
    share = free / total
    if share > NEARLY_FULL:
        return
    made, check = (error, "disk-full") if share <= FULL else (warning, "disk-nearly-full")
    yield made(
        check,
        path,
        f"{human_bytes(free)} of {human_bytes(total)} are free; a broker that cannot write takes "
        "no records",
        "lower log.retention.hours or log.retention.bytes, trim topics (tidelog topic trim), or "
        "add a directory on another disk to log.dirs",
    )


def check_times(path: Path, logs: list[Path], machine: Machine) -> Iterator[Finding]:
    newest, where = 0.0, path
    for log in logs:
        for file in log.glob("*.log"):
            changed = file.stat().st_mtime
            if changed > newest:
                newest, where = changed, file
    ahead_s = newest - machine.now_s()
    if ahead_s > FUTURE_S:
        yield error(
            "files-from-the-future",
            where,
            f"it was written {ahead_s / 3600:.1f} hours after now: a clock is wrong, and retention "
            "goes by clocks",
            "set the clock (timedatectl set-ntp true), then start the broker",
        )


def check_adoption(
    path: Path, logs: list[Path], config: BrokerConfig, machine: Machine
) -> Iterator[Finding]:
    """A Kafka's directory that a first start here takes over, with a retention that is told."""
    is_ours = any((config.log_dirs[0] / name).exists() for name in (JOURNAL_NAME, SNAPSHOT_NAME))
    told = [name for name in TELLING_OF_RETENTION if name in config.originals]
    if is_ours or not told or config.log_retention_ms < 0 or config["zookeeper.connect"]:
        return
    deadline = machine.now_s() - config.log_retention_ms / 1000
    old = [
        file
        for log in logs
        if not log.name.startswith("__")
        for file in log.glob("*.log")
        if file.stat().st_size and file.stat().st_mtime < deadline
    ]
    if old:
        yield error(
            "retention-deletes-adopted-data",
            path,
            f"{len(old)} segments are older than {told[0]}={config.originals[told[0]]}: the first "
            "start takes the directory over, and retention deletes them",
            "set log.retention.ms=-1 before the first start, then retention.ms of each topic "
            "(docs/adoption.md)",
        )


def check_identities(config: BrokerConfig) -> Iterator[Finding]:
    clusters: dict[str, Path] = {}
    for path in config.log_dirs:
        try:
            found = read_meta_properties(str(path))
        except StartupError as problem:
            yield error(
                "meta-properties",
                path,
                str(problem),
                "copy meta.properties from another directory of this broker",
            )
            continue
        if found is None:
            continue
        if config.broker_id_is_set and found.broker_id != config.broker_id:
            yield error(
                "broker-id",
                path,
                f"meta.properties says broker.id={found.broker_id}, and the configuration says "
                f"{config.broker_id}",
                f"set broker.id={found.broker_id}, or correct log.dirs",
            )
        other = next((each for each in clusters if each != found.cluster_id), None)
        if other is not None:
            yield error(
                "other-cluster",
                path,
                f"it is of the cluster {found.cluster_id}, and {clusters[other]} is of {other}",
                "take the directory that does not belong here out of log.dirs",
            )
        clusters.setdefault(found.cluster_id, path)


def _is_log(name: str) -> bool:
    topic, dash, partition = name.rpartition("-")
    return bool(topic and dash) and partition.isdigit()


def _is_locked(path: Path) -> bool:
    """Tries the lock for a moment, as a reader."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
