"""What a KRaft metadata log says of access: control lists, SCRAM credentials, client quotas."""

from __future__ import annotations

from typing import Final

from tidelog.acls import (
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from tidelog.controller import znodes
from tidelog.protocol.message import Message
from tidelog.protocol.messages.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    EntityData,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from tidelog.sasl.scram_credential import SCRAM_MECHANISMS, ScramCredential, ScramMechanism
from tidelog.types import Uuid

SECURITY_RECORDS: Final[tuple[type[Message], ...]] = (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    UserScramCredentialRecord,
    RemoveUserScramCredentialRecord,
    ClientQuotaRecord,
)
USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"


class SecurityImage:
    """Users, clients and addresses are as the store names them: `znodes.config_path`."""

    def __init__(self) -> None:
        self.acls: dict[Uuid, AclBinding] = {}
        self.credentials: dict[str, dict[str, str]] = {}  # of a user, by mechanism
        self.quotas: dict[tuple[str, str], dict[str, str]] = {}  # by type and name of the entity

    def apply(self, message: Message) -> None:
        """ValueError if the record does not fit what is there."""
        if isinstance(message, AccessControlEntryRecord):
            self.acls[message.id] = AclBinding(
                ResourceType(message.resource_type),
                message.resource_name,
                message.principal,
                AclOperation(message.operation),
                AclPermission(message.permission_type),
                message.host,
                PatternType(message.pattern_type),
            )
        elif isinstance(message, RemoveAccessControlEntryRecord):
            if self.acls.pop(message.id, None) is None:
                raise ValueError("removes an access control entry that is not there")
        elif isinstance(message, UserScramCredentialRecord):
            credential = ScramCredential(
                message.salt, message.stored_key, message.server_key, message.iterations
            )
            texts = self.credentials.setdefault(znodes.sanitized(message.name), {})
            texts[_mechanism(message.mechanism)] = credential.to_text()
        elif isinstance(message, RemoveUserScramCredentialRecord):
            texts = self.credentials.get(znodes.sanitized(message.name), {})
            if texts.pop(_mechanism(message.mechanism), None) is None:
                raise ValueError("removes a SCRAM credential that is not there")
        else:
            assert isinstance(message, ClientQuotaRecord), message
            self._set_quota(message)

    def _set_quota(self, record: ClientQuotaRecord) -> None:
        texts = self.quotas.setdefault(_config_entity(record.entity), {})
        if record.remove:
            texts.pop(record.key, None)
        else:
            texts[record.key] = (
                f"{record.value:.0f}" if record.value % 1 == 0 else f"{record.value}"
            )


def _mechanism(code: int) -> str:
    mechanism = ScramMechanism(code)
    if mechanism not in SCRAM_MECHANISMS:
        raise ValueError(f"{code} is no SCRAM mechanism that is known here")
    return mechanism.mechanism_name


def _config_entity(entity: list[EntityData]) -> tuple[str, str]:
    names = {
        each.entity_type: (
            znodes.DEFAULT_ENTITY
            if each.entity_name is None
            else znodes.sanitized(each.entity_name)
        )
        for each in entity
    }
    if names.keys() == {USER}:
        return "users", names[USER]
    if names.keys() == {CLIENT_ID}:
        return "clients", names[CLIENT_ID]
    if names.keys() == {USER, CLIENT_ID}:
        return "users", f"{names[USER]}/clients/{names[CLIENT_ID]}"
    if names.keys() == {IP}:
        return "ips", names[IP]
    raise ValueError(f"a quota of {', '.join(names) or 'nobody'} is not known here")
