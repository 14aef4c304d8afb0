"""Protobuf descriptors: a message of a descriptor set, and where it stands in its file.

A registry may give a schema as a serialized FileDescriptorProto in base64, or as the text of a
.proto file. Of a text only the names of its messages are read, in their order, which is all that is
needed to know what a frame's indexes mean; records of a message are read by the user's own
descriptors, since fields go by their numbers.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final

from tidelog.spark.codecs.errors import SchemaError

# Files that every Protobuf library has; Confluent registers no references to them.
KNOWN_FILES: Final = ("google/protobuf/", "google/type/", "confluent/")
_TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|[\w.]+|[{}=;<]", re.DOTALL
)


class ProtobufSchema:
    """One message of a FileDescriptorSet; raises SchemaError when it is not there."""

    def __init__(self, descriptors: bytes, message: str) -> None:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
        from google.protobuf.message import DecodeError

        try:
            files = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file
        except DecodeError:
            raise SchemaError("is no output of protoc --descriptor_set_out") from None
        pool = descriptor_pool.DescriptorPool()
        try:
            for file in files:
                pool.Add(file)
            found = pool.FindMessageTypeByName(message)
        except TypeError as problem:
            told = f"{problem}; make it with protoc --include_imports"
            raise SchemaError(f"descriptors are not complete: {told}") from None
        except KeyError:
            names = [
                f"{file.package}.{row.name}".lstrip(".")
                for file in files
                for row in file.message_type
            ]
            raise SchemaError(f"has no message {message}; there is {', '.join(names)}") from None
        self.message: Any = message_factory.GetMessageClass(found)
        self.descriptor: Any = found
        self.indexes = _indexes(found)


def _indexes(descriptor: Any) -> tuple[int, ...]:
    around = descriptor.containing_type
    if around is None:
        return (list(descriptor.file.message_types_by_name).index(descriptor.name),)
    return (*_indexes(around), [row.name for row in around.nested_types].index(descriptor.name))


def file_text(file: Any) -> str:
    """A file as a registry takes it."""
    return base64.b64encode(file.serialized_pb).decode()


def message_names(schema: str, indexes: tuple[int, ...]) -> set[str]:
    """What message the indexes may mean in a schema of a registry: clients count the messages that
    hold a map's entries, or do not. Raises SchemaError when there is no such message."""
    tree = _tree(schema)
    found = {
        name
        for counts_entries in (True, False)
        if (name := _at(tree, indexes, counts_entries)) is not None
    }
    if not found:
        raise SchemaError(f"the schema has no message {list(indexes)}")
    return found


class _Message:
    def __init__(self, name: str, is_entry: bool = False) -> None:
        self.name = name
        self.is_entry = is_entry
        self.nested: list[_Message] = []


def _at(tree: _Message, indexes: tuple[int, ...], counts_entries: bool) -> str | None:
    parts, place = [tree.name] if tree.name else [], tree
    for index in indexes:
        counted = [row for row in place.nested if counts_entries or not row.is_entry]
        if not 0 <= index < len(counted):
            return None
        place = counted[index]
        parts.append(place.name)
    return ".".join(parts)


def _tree(schema: str) -> _Message:
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(
            base64.b64decode(schema, validate=True)
        )
    except (binascii.Error, DecodeError, ValueError):
        return _tree_of_text(schema)
    root = _Message(file.package)
    root.nested = [_of_descriptor(row) for row in file.message_type]
    return root


def _of_descriptor(descriptor: Any) -> _Message:
    made = _Message(descriptor.name, descriptor.options.map_entry)
    made.nested = [_of_descriptor(row) for row in descriptor.nested_type]
    return made


def _tree_of_text(text: str) -> _Message:
    tokens = [token for token in _TOKEN.findall(text) if token[:2] not in ("//", "/*")]
    root = _Message(_package(tokens))
    # Braces that are open: a message, or None for anything else.
    open_braces: list[_Message | None] = [root]
    for number, token in enumerate(tokens):
        around = open_braces[-1]
        if token == "}" and len(open_braces) > 1:
            open_braces.pop()
        elif token == "<" and tokens[number - 1] == "map" and around is not None:
            around.nested.append(_Message("", is_entry=True))
        elif token == "{":
            name = _name_before(tokens[:number][-4:])
            made = None if name is None or around is None else _Message(name)
            if made is not None and around is not None:
                around.nested.append(made)
            open_braces.append(made)
    return root


def _package(tokens: list[str]) -> str:
    return next((name for word, name in pairwise(tokens) if word == "package"), "")


def _name_before(tokens: list[str]) -> str | None:
    """Of `message NAME {` or `group NAME = 1 {`."""
    if len(tokens) >= 2 and tokens[-2] == "message":
        return tokens[-1]
    is_group = len(tokens) == 4 and tokens[0] == "group" and tokens[2] == "="
    return tokens[1] if is_group else None


def dependencies(file: Any) -> Iterable[Any]:
    return (row for row in file.dependencies if not row.name.startswith(KNOWN_FILES))
