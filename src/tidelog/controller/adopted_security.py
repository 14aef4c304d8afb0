"""Access control lists, users and quotas of an adopted KRaft directory: what the store gets.

Kafka's replace those of the store, as its topics do, with one exception: what was denied here stays
denied. An entry that no node can hold (a slash in the name of its resource, a type of resource that
is not known) is left out with a warning if it allows something; if it denies something, the broker
does not start.

Delegation tokens are not adopted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from tidelog.acls import AccessControlEntry, AclBinding, AclPermission, ResourcePattern
from tidelog.controller import acl_znodes, znodes
from tidelog.controller.kraft.security_image import SecurityImage
from tidelog.controller.metadata_store import (
    BadArguments,
    Create,
    Delete,
    MetadataStore,
    Operation,
    SetData,
    require_valid_path,
)
from tidelog.errors import StartupError

logger = logging.getLogger(__name__)

CONFIG_ENTITIES: Final = ("users", "clients", "ips")


class AdoptedSecurity:
    def __init__(self, image: SecurityImage) -> None:
        """StartupError if something that Kafka denies cannot be denied here."""
        self._entries: dict[ResourcePattern, set[AccessControlEntry]] = {}
        for binding in image.acls.values():
            if _can_be_stored(binding):
                self._entries.setdefault(binding.pattern, set()).add(binding.entry)
        self._configs = {entity: dict(texts) for entity, texts in image.quotas.items()}
        for user, texts in image.credentials.items():
            self._configs.setdefault(("users", user), {}).update(texts)
        self._users = sum(map(bool, image.credentials.values()))
        self._quotas = sum(map(bool, image.quotas.values()))

    def operations(self, store: MetadataStore) -> Iterator[Operation]:
        yield from self._acl_operations(store)
        wanted = {
            path: znodes.encode_config(texts)
            for entity, texts in self._configs.items()
            if texts and _is_valid(path := znodes.config_path(*entity))
        }
        present: set[str] = set()
        for entity_type in CONFIG_ENTITIES:
            root = f"/config/{entity_type}"
            present |= {path for path, _, _ in store.subtree(root) if path != root}
        emptied = {
            path: znodes.encode_config({})
            for path in present - wanted.keys()
            if not path.endswith("/clients")  # below a user, above its clients
        }
        for path, data in sorted((wanted | emptied).items()):
            yield SetData(path, data) if path in present else Create(path, data, make_parents=True)

    def _acl_operations(self, store: MetadataStore) -> Iterator[Operation]:
        entries = {pattern: set(some) for pattern, some in self._entries.items()}
        present: set[ResourcePattern] = set()
        for root in acl_znodes.PATTERN_TYPES.values():
            for path, data, _ in store.subtree(root):
                pattern = acl_znodes.pattern_of(path)
                if pattern is not None:
                    present.add(pattern)
                    denied = _denied(pattern, data)
                    if denied:
                        entries.setdefault(pattern, set()).update(denied)
        for pattern in sorted(present - entries.keys()):
            yield Delete(acl_znodes.path_of(pattern))
        for pattern, some in sorted(entries.items()):
            path, data = acl_znodes.path_of(pattern), acl_znodes.encode_entries(some)
            is_present = pattern in present
            yield SetData(path, data) if is_present else Create(path, data, make_parents=True)

    def report(self, *, has_authorizer: bool) -> None:
        count = sum(map(len, self._entries.values()))
        if count or self._users or self._quotas:
            logger.info(
                "adopted %d access control entries, %d users with SCRAM credentials and the "
                "quotas of %d entities",
                count,
                self._users,
                self._quotas,
            )
        if count and not has_authorizer:
            logger.warning(
                "there are %d access control entries and no authorizer, so everybody may do "
                "everything: set authorizer.class.name as it was in Kafka",
                count,
            )


def _can_be_stored(binding: AclBinding) -> bool:
    pattern = binding.pattern
    if (
        pattern.resource_type in acl_znodes.RESOURCE_TYPES
        and pattern.pattern_type in acl_znodes.PATTERN_TYPES
        and "/" not in pattern.name
        and _is_valid(acl_znodes.path_of(pattern))
    ):
        return True
    if binding.permission is not AclPermission.ALLOW:
        raise StartupError(
            f"an access control entry of Kafka cannot be kept here, and without it something would "
            f"be allowed that Kafka denies: {binding}. Remove it in Kafka first"
        )
    logger.warning("an access control entry cannot be kept here and is left out: %s", binding)
    return False


def _is_valid(path: str) -> bool:
    try:
        require_valid_path(path)
    except BadArguments:
        logger.warning("no node can be called %s, so what Kafka has there is left out", path)
        return False
    return True


def _denied(pattern: ResourcePattern, data: bytes) -> set[AccessControlEntry]:
    try:
        entries = acl_znodes.decode_entries(data)
    except ValueError as error:
        raise StartupError(
            f"the access control list of {pattern} cannot be read: {error}"
        ) from error
    return {entry for entry in entries if entry.permission is AclPermission.DENY}
