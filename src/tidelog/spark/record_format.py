"""How the value of a record is written, as checked values; for `decode` and `encode`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.spark.codecs.schema_registry import SchemaSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

JSON, CSV, RAW, AVRO, PROTOBUF = "json", "csv", "raw", "avro", "protobuf"
FORMATS: Final = (JSON, CSV, RAW, AVRO, PROTOBUF)
# The formats that Python workers decode.
DECODED_FORMATS: Final = (AVRO, PROTOBUF)


@dataclass(frozen=True, slots=True)
class RecordFormat:
    kind: str = JSON
    schema: str | StructType = ""  # the columns, or their DDL; empty for raw and for writing
    options: Mapping[str, str] = field(default_factory=dict)  # Spark's, for JSON and CSV
    schema_file: Path | None = None  # of Avro, of JSON, or a set of Protobuf descriptors
    message: str = ""  # the Protobuf message's full name
    is_confluent: bool = False  # the id of a schema stands before the record
    schemas: SchemaSource | None = None  # where ids are looked up
    subject: str = ""  # the name of the schema in a registry, for writing

    def __post_init__(self) -> None:
        if self.kind not in FORMATS:
            raise ValueError(f'kind: "{self.kind}" is not known; there is {", ".join(FORMATS)}')
