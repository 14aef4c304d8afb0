"""Writes the classes of a module: a slots class per message and per struct."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.protocol.generation.schema import Field, MessageSchema, SchemaFile
    from tidelog.protocol.generation.source import Source


def write_classes(source: Source) -> None:
    classes = _struct_classes(source)
    for message in source.file.messages:
        _write_message(source, message)
        for name, (owner, rows) in classes.items():
            if owner == message.name:
                source.start(f"class {name}({source.use('Struct')}):")
                _write_fields(source, owner, rows)


def struct_class_names(file: SchemaFile) -> dict[tuple[str, str], str]:
    """(message, struct) to class; a name with two meanings in a file is led by its message's."""
    meanings: dict[str, set[tuple[Field, ...]]] = {}
    for message in file.messages:
        for name, rows in _structs_of(message.fields).items():
            meanings.setdefault(name, set()).add(rows)
    names = {
        (message.name, name): name if len(meanings[name]) == 1 else message.name + name
        for message in file.messages
        for name in _structs_of(message.fields)
    }
    assert not set(names.values()) & {message.name for message in file.messages}
    return names


def _struct_classes(source: Source) -> dict[str, tuple[str, tuple[Field, ...]]]:
    """Class name to (the first message that has it, fields)."""
    classes: dict[str, tuple[str, tuple[Field, ...]]] = {}
    for message in source.file.messages:
        for name, rows in _structs_of(message.fields).items():
            classes.setdefault(source.class_names[message.name, name], (message.name, rows))
    return classes


def _structs_of(rows: tuple[Field, ...]) -> dict[str, tuple[Field, ...]]:
    """Struct name to fields, outer ones first."""
    found: dict[str, tuple[Field, ...]] = {}
    for row in rows:
        if row.is_struct:
            for name, fields in ({row.element: row.fields} | _structs_of(row.fields)).items():
                assert found.setdefault(name, fields) == fields, name
    return found


def _write_message(source: Source, message: MessageSchema) -> None:
    base = source.use("RecordsMessage" if message.holds_records else "Message")
    source.start(f"class {message.name}({base}):")
    source.indent += 1
    if message.api_key >= 0:
        source(f"API_KEY = {message.api_key}")
    if message.record_type >= 0:
        source(f"RECORD_TYPE = {message.record_type}")
    source(f"MIN_VERSION = {message.versions.start}")
    source(f"MAX_VERSION = {message.versions.stop - 1}")
    source.indent -= 1
    _write_fields(source, message.name, message.fields)


def _write_fields(source: Source, owner: str, rows: tuple[Field, ...]) -> None:
    source.indent += 1
    names = [f'"{row.name}"' for row in rows]
    source.call("__slots__ = ", names if len(names) != 1 else [names[0] + ","])
    if rows:
        source()
        source("def __init__(")
        source("    self,")
        source("    *,")
        for row in rows:
            default = source.default(owner, row)
            if _is_made_anew(default):
                default = source.use("EMPTY")
            source(f"    {row.name}: {source.python_type(owner, row)} = {default},")
        source(") -> None:")
        for row in rows:
            default = source.default(owner, row)
            value = f"{default} if {row.name} is EMPTY else " * _is_made_anew(default) + row.name
            source(f"    self.{row.name} = {value}")
    source.indent -= 1


def _is_made_anew(default: str) -> bool:
    return default == "[]" or default.endswith("()")
