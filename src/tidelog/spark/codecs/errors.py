"""What goes wrong with schemas and records, by whose fault it is.

SchemaError      a schema that is none, two that do not resolve, columns that never fit
EncodeError      a value that the schema of a sink cannot hold; its batch fails
UnknownSchema    a record that names a schema nobody has; the record is a dead letter
RegistryError    a registry that does not work; the batch fails, and no record is to blame
"""

from __future__ import annotations


class SchemaError(ValueError):
    """Names the field."""


class EncodeError(ValueError):
    """Names the field."""


class UnknownSchema(LookupError):
    """Names the id."""


class RegistryError(Exception):
    """Names the registry, and says what to do."""
