"""Access control lists in the metadata store: reading them, changing them, hearing of changes.

They lie where Kafka 3.9 keeps them (`controller.acl_znodes`), over ZooKeeper and in the embedded
store alike. What is read goes into the `Authorizer`, which decides by it.

A change is written if the node is still as it was read, else it begins again. The write and its
announcement are one transaction of the store, so that no broker misses a change whose writer dies.
The authorizer follows before the caller is answered. Changes and announcements are worked on one at
a time, each with what the store has then (`controller.store_changes`).

Every broker follows the announcements and reads what they name. When a session begins it reads
everything anew: announcements go after a while, and it may have been away for longer.

A node that cannot be read denies everybody everything on its resources, and says so in the log:
what it denied must not be allowed because of damage.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from tidelog.acls import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from tidelog.controller import acl_znodes
from tidelog.controller.announcements import Announcements
from tidelog.controller.metadata_store import (
    BadArguments,
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    StoreError,
)
from tidelog.controller.store_changes import ChangedByOthers, StoreChanges, until_written
from tidelog.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from tidelog.broker.security.authorizer import Authorizer
    from tidelog.clock import Clock, Timer

logger = logging.getLogger(__name__)

Entries = frozenset[AccessControlEntry]

READS_AT_ONCE: Final = 100

DENY_ALL: Final = frozenset(
    {AccessControlEntry(WILDCARD_PRINCIPAL, WILDCARD, AclOperation.ALL, AclPermission.DENY)}
)


class AclStore:
    """Touched only on the broker's loop."""

    def __init__(
        self, store: MetadataStore, authorizer: Authorizer, *, clock: Clock, timer: Timer
    ) -> None:
        self._store = store
        self.authorizer = authorizer
        self._timer = timer
        self._changes = StoreChanges()
        self._announcements = tuple(
            Announcements(
                store,
                f"{root}/{acl_znodes.CHANGE_PREFIX}",
                partial(self._take_over, extended=root == acl_znodes.EXTENDED_CHANGES),
                clock=clock,
                timer=timer,
                reread=self._read_all if root == acl_znodes.CHANGES else None,
            )
            for root in (acl_znodes.CHANGES, acl_znodes.EXTENDED_CHANGES)
        )

    # Reading

    def load(self) -> None:
        """Reads all lists, blocking; for start-up."""
        for path in acl_znodes.persistent_paths():
            with contextlib.suppress(NodeExists):
                self._store.multi_now([Create(path, make_parents=True)])
        for root in acl_znodes.PATTERN_TYPES.values():
            for path, data, _ in self._store.subtree(root):
                pattern = acl_znodes.pattern_of(path)
                if pattern is not None:
                    self.authorizer.put(pattern, _decoded(pattern, data))

    def watch(self) -> None:
        """From now on changes by others are taken over."""
        for each in self._announcements:
            each.start()

    async def caught_up(self) -> None:
        """Until all changes are taken over that can be read now."""
        for each in self._announcements:
            await each.caught_up()

    def session_began(self) -> None:
        for each in self._announcements:
            each.session_began()

    def close(self) -> None:
        for each in self._announcements:
            each.close()

    async def _take_over(self, data: bytes, *, extended: bool) -> None:
        try:
            pattern = acl_znodes.decode_change(data, extended=extended)
        except ValueError as error:
            logger.warning("an announcement cannot be read, so all lists are read: %s", error)
            await self._read_all()
            return
        if pattern.resource_type in acl_znodes.RESOURCE_TYPES and (
            pattern.pattern_type in acl_znodes.PATTERN_TYPES
        ):
            async with self._changes.lock:
                await self._read(pattern)

    async def _read_all(self) -> None:
        async with self._changes.lock:
            await self._reload()

    async def _read(self, pattern: ResourcePattern) -> int | None:
        """Takes over what the store has. The version of the node, if there is one."""
        try:
            data, stat = await self._store.get(acl_znodes.path_of(pattern))
        except (NoNode, BadArguments):  # no node can have such a name
            self._use(pattern, frozenset())
            return None
        self._use(pattern, _decoded(pattern, data))
        return stat.version

    def _use(self, pattern: ResourcePattern, entries: Entries) -> None:
        if self.authorizer.put(pattern, entries):
            logger.info(
                "access control list changed",
                extra={"resource": str(pattern), "entries": len(entries)},
            )

    async def _reload(self) -> None:
        found = set(self.authorizer.patterns())
        for pattern_type, root in acl_znodes.PATTERN_TYPES.items():
            for resource_type in acl_znodes.RESOURCE_TYPES:
                path = f"{root}/{acl_znodes.pascal_case(resource_type)}"
                with contextlib.suppress(NoNode):
                    found |= {
                        ResourcePattern(resource_type, name, pattern_type)
                        for name in await self._store.children(path)
                    }
        patterns = sorted(found)
        for first in range(0, len(patterns), READS_AT_ONCE):
            some = patterns[first : first + READS_AT_ONCE]
            await asyncio.gather(*(self._read(pattern) for pattern in some))

    def matching(self, wanted: AclBindingFilter) -> Iterable[list[AclBinding]]:
        """Bindings that the filter matches, those of one pattern at a time."""
        for pattern in tuple(self.authorizer.patterns()):
            if wanted.matches_pattern(pattern):
                yield [
                    AclBinding.of(pattern, entry)
                    for entry in sorted(self.authorizer.entries(pattern))
                    if wanted.matches_entry(entry)
                ]

    # Changing

    async def create(self, bindings: Iterable[AclBinding]) -> dict[AclBinding, KafkaError | None]:
        """What each of them failed with, if it did."""
        by_pattern: dict[ResourcePattern, list[AclBinding]] = {}
        for binding in bindings:
            by_pattern.setdefault(binding.pattern, []).append(binding)
        outcomes: dict[AclBinding, KafkaError | None] = {}
        for pattern, some in by_pattern.items():
            new = frozenset(binding.entry for binding in some)
            failure = await self._changes.in_turn(self._change(pattern, new.union))
            outcomes.update(dict.fromkeys(some, failure))
        return outcomes

    async def delete(
        self, filters: list[AclBindingFilter]
    ) -> list[dict[AclBinding, KafkaError | None]]:
        """What each filter matched, and what its deletion failed with, if it did.

        A binding that several filters match is the first one's.
        """
        results: list[dict[AclBinding, KafkaError | None]] = [{} for _ in filters]
        for pattern in self._touched_by(filters):
            matched: dict[AclBinding, int] = {}

            def rest(
                before: Entries,
                pattern: ResourcePattern = pattern,
                matched: dict[AclBinding, int] = matched,
            ) -> Entries:
                matched.clear()
                for entry in before:
                    binding = AclBinding.of(pattern, entry)
                    for place, wanted in enumerate(filters):
                        if wanted.matches_pattern(pattern) and wanted.matches_entry(entry):
                            matched[binding] = place
                            break
                return before - {binding.entry for binding in matched}

            failure = await self._changes.in_turn(self._change(pattern, rest))
            for binding, place in sorted(matched.items()):
                results[place][binding] = failure
        return results

    def _touched_by(self, filters: list[AclBindingFilter]) -> list[ResourcePattern]:
        """Those with an entry that matches here, and those named, which others may have made."""
        touched = {
            pattern
            for pattern in self.authorizer.patterns()
            for wanted in filters
            if wanted.matches_pattern(pattern)
            and any(map(wanted.matches_entry, self.authorizer.entries(pattern)))
        }
        for wanted in filters:
            name = wanted.resource_name
            if name and wanted.resource_type in acl_znodes.RESOURCE_TYPES:
                touched.update(
                    ResourcePattern(wanted.resource_type, name, pattern_type)
                    for pattern_type in acl_znodes.PATTERN_TYPES
                    if wanted.pattern_type in (PatternType.ANY, pattern_type)
                )
        return sorted(touched)

    async def _change(
        self, pattern: ResourcePattern, edit: Callable[[Entries], Entries]
    ) -> KafkaError | None:
        if pattern.resource_type is ResourceType.UNKNOWN or "/" in pattern.name:
            return KafkaError(
                ErrorCode.INVALID_REQUEST, f"An ACL cannot be for the resource {pattern}."
            )

        async def attempt() -> None:
            version = await self._read(pattern)
            before = self.authorizer.entries(pattern)
            entries = edit(before)
            if entries != before:
                await self._store.multi(_operations(pattern, entries, version))
                self._use(pattern, entries)

        try:
            await until_written(attempt, self._timer)
        except BadArguments:
            return KafkaError(
                ErrorCode.INVALID_REQUEST, f"An ACL cannot be for the resource {pattern}."
            )
        except (StoreError, ChangedByOthers) as error:
            return KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"The ACLs of {pattern} cannot be written: {error}"
            )
        return None


def _operations(pattern: ResourcePattern, entries: Entries, version: int | None) -> list[Operation]:
    path = acl_znodes.path_of(pattern)
    write: Operation
    if version is None:
        write = Create(path, acl_znodes.encode_entries(entries))
    elif entries:
        write = SetData(path, acl_znodes.encode_entries(entries), version)
    else:
        write = Delete(path, version)
    announcement = Create(
        acl_znodes.change_path(pattern), acl_znodes.encode_change(pattern), sequence=True
    )
    return [write, announcement]


def _decoded(pattern: ResourcePattern, data: bytes) -> Entries:
    try:
        return acl_znodes.decode_entries(data)
    except ValueError as error:
        logger.error(
            "the access control list of %s cannot be read, so everybody is denied: %s",
            pattern,
            error,
        )
        return DENY_ALL
