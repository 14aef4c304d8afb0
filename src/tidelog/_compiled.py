"""Which modules are compiled with mypyc, and whether this process uses them.

The build (setup.py) compiles MODULES into one shared library and puts an importable stub beside
each source file. Python prefers a stub to the source of the same name, so this module, which
`import tidelog` runs first, decides: all compiled modules are used, or none.

None are used where TIDELOG_PURE says so (1: nothing compiled at all; modules: no compiled modules,
but the record kernel), where nothing was compiled, and where a source has changed since. For that
the library's name carries a digest of the sources: also of interpreted ones, because constants and
the places of named tuples' fields are compiled into whoever uses them.
Compiled modules call each other directly and not through Python, so one of them must never run
beside another in its interpreted form.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, SourceFileLoader
from types import ModuleType
from typing import Final

# Compiled modules import nothing of these but each other.
APART: Final = frozenset(
    {
        "__pycache__",
        "client",
        "demo",
        "generation",
        "messages",
        "pipeline",
        "spark",
        "testing",
        "tools",
    }
)
PURE: Final = ("1", "modules")
MODULES: Final = frozenset(
    f"tidelog.{name}"
    for name in (
        "broker.context",
        "broker.dispatcher",
        "broker.fetch_sessions",
        "broker.handlers.fetch",
        "broker.handlers.heartbeat",
        "broker.handlers.metadata",
        "broker.handlers.offset_commit",
        "broker.handlers.produce",
        "broker.handlers.txn_offset_commit",
        "broker.metadata_answers",
        "broker.metadata_cache",
        "broker.observation.request_metrics",
        "broker.offset_rows",
        "broker.refused_sequences",
        "broker.security.authorizer",
        "broker.security.request_authorizer",
        "clock",
        "coordinator.deadline",
        "coordinator.group.coordinator",
        "coordinator.group.offsets",
        "coordinator.group.shard",
        "coordinator.registry",
        "coordinator.runtime",
        "coordinator.stored_record",
        "log.append_run",
        "log.leader_epoch_cache",
        "log.log_reader",
        "log.log_validator",
        "log.partition_log",
        "log.producer_loading",
        "log.producer_state",
        "log.segment.index_file",
        "log.segment.log_file",
        "log.segment.log_segment",
        "log.segment.offset_index",
        "log.segment.time_index",
        "network.channel",
        "network.connection",
        "network.framing",
        "network.memory_pool",
        "network.processor",
        "network.request_channel",
        "network.session",
        "pending",
        "protocol.fetch_metadata",
        "protocol.header",
        "protocol.messages.fetch",
        "protocol.messages.heartbeat",
        "protocol.messages.offset_commit",
        "protocol.messages.produce",
        "protocol.primitives",
        "record.batch",
        "record.builder",
        "record.file_records",
        "replication.append_turn",
        "replication.delayed_answer",
        "replication.delayed_fetch",
        "replication.follower_session",
        "replication.leadership",
        "replication.partition",
        "replication.remote_replica",
        "replication.replica_manager",
        "replication.traffic",
        "supervisor",
        "tls.transport",
        "transport",
    )
)


def library_name(root: str) -> str:
    """Of the library that belongs to the present sources; `root` holds the package."""
    sources = {f"{root}/{name.replace('.', '/')}.py" for name in MODULES}
    for folder, folders, files in os.walk(f"{root}/tidelog"):
        folders[:] = [each for each in folders if each not in APART]
        sources.update(f"{folder}/{name}" for name in files if name.endswith(".py"))
    digest = 0
    for path in sorted(sources):
        with open(path, "rb") as source:
            digest = zlib.crc32(source.read(), digest)
    return f"tidelog_{digest:08x}"


class _Sources:
    """A finder that gives the sources of MODULES, whatever stubs lie beside them."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in MODULES or path is None:
            return None
        for folder in path:
            source = f"{folder}/{name.rpartition('.')[2]}.py"
            if os.path.exists(source):
                spec = ModuleSpec(name, SourceFileLoader(name, source), origin=source)
                spec.has_location = True
                return spec
        return None


def _is_built(root: str) -> bool:
    return os.path.exists(f"{root}/{library_name(root)}__mypyc{EXTENSION_SUFFIXES[0]}")


def choose() -> bool:
    """Whether compiled modules are used from here on. Called once, before any of them is loaded."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if os.environ.get("TIDELOG_PURE") not in PURE and _is_built(root):
        return True
    sys.meta_path.insert(0, _Sources)
    return False
