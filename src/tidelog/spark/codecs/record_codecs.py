"""Avro, Protobuf and framed JSON records as columns of Spark, by functions in Python workers.

`tidelog.spark.decoding` and `tidelog.spark.encoding` are what programs use; these are the columns
behind them.

A codec travels to the workers with its schema, and builds there what it needs, once a process. It
decodes batches of Arrow; no text stands in between. Good rows have `parsed`, a struct with the
columns, and a null `reason`; broken ones the other way round. A registry that does not answer is
nobody's broken row: it raises, and Spark fails the batch.

Needs `fastavro` or `protobuf`, extras of tidelog.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from tidelog.spark.record_format import AVRO, JSON, PROTOBUF

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    from tidelog.spark.codecs.avro_schema import AvroSchema
    from tidelog.spark.codecs.broken_rows import BrokenRows, Indexes
    from tidelog.spark.codecs.schema_registry import RegisteredSchema, SchemaSource

NO_VALUE: Final = "the record has no value"
PARSED_FIELD: Final = "parsed"
REASON_FIELD: Final = "reason"
READERS_MAX: Final = 1_000  # of one codec in one process, one for each id of a schema
_REGISTRY_KINDS: Final = {AVRO: "AVRO", PROTOBUF: "PROTOBUF", JSON: "JSON"}


def missing_codec(kind: str) -> str | None:
    """What to install before `kind` can be read or written."""
    module, extra = ("fastavro", "avro") if kind == AVRO else ("google.protobuf", "protobuf")
    try:
        found = find_spec(module)
    except ModuleNotFoundError:
        found = None
    return None if found else f"format {kind} needs an extra: pip install 'tidelog[{extra}]'"


class _Codec:
    """`schema` is an Avro schema, a set of Protobuf descriptors, or nothing; `message` is the full
    name of a Protobuf message. `schemas` is where schemas come from by their id."""

    def __init__(
        self,
        kind: str,
        columns: Any,
        *,
        schema: bytes = b"",
        message: str = "",
        schemas: SchemaSource | None = None,
        is_framed: bool = False,
    ) -> None:
        self.kind = kind
        self.columns = columns  # a struct of Arrow
        self.schema = schema
        self.message = message
        self.schemas = schemas
        self.is_framed = is_framed
        # What is made of the codec's own schema, and by ids of others; neither travels.
        self._made: dict[str, Any] = {}
        self._by_id: dict[Any, Any] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_made": {}, "_by_id": {}}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.kind}, {self.message or self.columns})"

    def _once(self, key: str, make: Callable[[], Any]) -> Any:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _keep(self, key: Any, made: Any) -> None:
        if len(self._by_id) >= READERS_MAX:
            del self._by_id[next(iter(self._by_id))]
        self._by_id[key] = made

    def _own_schema(self) -> Any:
        """What `schema` is; raises SchemaError."""
        from tidelog.spark.codecs.avro_schema import AvroSchema
        from tidelog.spark.codecs.protobuf_schema import ProtobufSchema

        if self.kind == AVRO:
            return self._once("schema", lambda: AvroSchema(_text(self.schema)))
        return self._once("schema", lambda: ProtobufSchema(self.schema, self.message))


class RecordDecoder(_Codec):
    """Of Avro or Protobuf. An Avro `schema` is the reader's; without it, framed records are read by
    the writer's, a column taking the field of its name."""

    def __init__(self, kind: str, columns: Any, *, zone: str = "UTC", **more: Any) -> None:
        super().__init__(kind, columns, **more)
        self.zone = zone

    def check(self) -> None:
        """Raises SchemaError for columns that no record could fill."""
        from tidelog.spark.codecs.avro_reader import AvroReader
        from tidelog.spark.codecs.protobuf_columns import ProtobufReader

        if self.kind == PROTOBUF:
            self._once(
                "reader", lambda: ProtobufReader(self._own_schema(), self.columns, self.zone)
            )
        elif self.schema:
            AvroReader(self._own_schema(), None, self.columns, self.zone)

    def decode(self, values: Any) -> Any:
        """A binary array to a struct array of `parsed` and `reason`, row by row."""
        import numpy as np
        import pyarrow as pa

        from tidelog.spark.codecs.broken_rows import BrokenRows

        values = values.cast(pa.binary())  # Spark may be set to give large ones
        broken = BrokenRows(len(values))
        there = values.is_valid().to_numpy(zero_copy_only=False)
        broken.add(np.flatnonzero(~there), NO_VALUE)
        rows = np.flatnonzero(there)
        if len(rows) != len(values):
            values = values.fill_null(b"")
        parts = self._framed(values, rows, broken) if self.is_framed else []
        if not self.is_framed and len(rows):
            parts = [(rows, self._unframed(values, rows, broken))]
        parsed = _placed(parts, len(values), self.columns, broken.is_good())
        return pa.StructArray.from_arrays(
            [parsed, broken.reasons()], names=[PARSED_FIELD, REASON_FIELD]
        )

    def _unframed(self, values: Any, rows: Indexes, broken: BrokenRows) -> Any:
        import numpy as np

        from tidelog.spark.codecs.avro_reader import AvroReader

        if self.kind == AVRO:
            reader = self._once(
                "reader", lambda: AvroReader(self._own_schema(), None, self.columns, self.zone)
            )
            return reader.read(values, np.zeros(len(rows), np.int64), rows, broken)
        self.check()
        picked = values.to_pylist() if len(rows) == len(values) else values.take(rows).to_pylist()
        return self._made["reader"].read(picked, rows, broken)

    def _framed(self, values: Any, rows: Indexes, broken: BrokenRows) -> list[tuple[Indexes, Any]]:
        """Rows and their structs, a pair for each schema."""
        import numpy as np

        from tidelog.spark.codecs.framing import schema_ids

        rows, ids = schema_ids(values, rows, broken)
        if self.kind == PROTOBUF:
            return self._framed_messages(values, rows, ids, broken)
        return [
            (own, found)
            for schema_id in np.unique(ids).tolist()
            for own in [rows[ids == schema_id]]
            if (found := self._of_writer(values, own, schema_id, broken)) is not None
        ]

    def _of_writer(self, values: Any, rows: Indexes, schema_id: int, broken: BrokenRows) -> Any:
        """Avro records of one writer's schema; None when it cannot be read by."""
        import numpy as np

        from tidelog.spark.codecs.framing import FRAME_BYTES

        reader, problem = self._reader_of(schema_id)
        if problem is not None:
            broken.add(rows, problem)
            return None
        return reader.read(values, np.full(len(rows), FRAME_BYTES), rows, broken)

    def _reader_of(self, schema_id: int) -> tuple[Any, str | None]:
        """How to read by a writer's schema, or why not. Ids never change their meaning, so either
        is kept, but not that an id is unknown."""
        from tidelog.spark.codecs.errors import UnknownSchema
        from tidelog.spark.codecs.schema_registry import schemas_of

        assert self.schemas is not None, "Avro with frames needs schemas"
        if schema_id not in self._by_id:
            try:
                schema = schemas_of(self.schemas).schema(schema_id)
            except UnknownSchema as problem:
                return None, str(problem)
            self._keep(schema_id, self._resolved(schema))
        made: tuple[Any, str | None] = self._by_id[schema_id]
        return made

    def _resolved(self, schema: RegisteredSchema) -> tuple[Any, str | None]:
        from tidelog.spark.codecs.avro_reader import AvroReader
        from tidelog.spark.codecs.errors import SchemaError

        if problem := _wrong_kind(schema, self.kind):
            return None, problem
        try:
            writer = self._writer_schema(schema)
            reader = self._own_schema() if self.schema else None
            return AvroReader(writer, reader, self.columns, self.zone), None
        except SchemaError as problem:
            return None, f"schema id {schema.id}: {problem}"

    def _writer_schema(self, schema: RegisteredSchema) -> AvroSchema:
        from tidelog.spark.codecs.avro_schema import AvroSchema
        from tidelog.spark.codecs.schema_registry import schemas_of

        assert self.schemas is not None, self
        references = [text for _, text in schemas_of(self.schemas).references(schema)]
        return AvroSchema(schema.text, references)

    def _framed_messages(
        self, values: Any, rows: Indexes, ids: Indexes, broken: BrokenRows
    ) -> list[tuple[Indexes, Any]]:
        """Rows of one schema and message are judged together."""
        import numpy as np

        from tidelog.spark.codecs.framing import records_behind

        self.check()
        parts = []
        for schema_id in np.unique(ids).tolist():
            for indexes, own, records in records_behind(values, rows[ids == schema_id], broken):
                if problem := self._other_message(schema_id, indexes):
                    broken.add(own, problem)
                else:
                    parts.append((own, self._made["reader"].read(records, own, broken)))
        return parts

    def _other_message(self, schema_id: int, indexes: tuple[int, ...]) -> str | None:
        """Why a frame's message is not the declared one. By its name where schemas can be asked
        for; else by its place, which must be the one in the user's descriptors."""
        from tidelog.spark.codecs.errors import UnknownSchema
        from tidelog.spark.codecs.schema_registry import schemas_of

        key = schema_id, indexes
        if self.schemas is None:
            own: tuple[int, ...] = self._own_schema().indexes
            told = f"holds message {list(indexes)} of its schema; {self.message} is {list(own)}"
            return None if indexes == own else told
        if key not in self._by_id:
            try:
                schema = schemas_of(self.schemas).schema(schema_id, "serialized")
            except UnknownSchema as problem:
                return str(problem)
            self._keep(key, self._named_problem(schema, indexes))
        problem_found: str | None = self._by_id[key]
        return problem_found

    def _named_problem(self, schema: RegisteredSchema, indexes: tuple[int, ...]) -> str | None:
        from tidelog.spark.codecs.errors import SchemaError
        from tidelog.spark.codecs.protobuf_schema import message_names

        if problem := _wrong_kind(schema, self.kind):
            return problem
        try:
            names = message_names(schema.text, indexes)
        except SchemaError as problem:
            return f"schema id {schema.id}: {problem}"
        if self.message in names:
            return None
        return f"schema id {schema.id}: holds {' or '.join(sorted(names))}, not {self.message}"


def _wrong_kind(schema: RegisteredSchema, kind: str) -> str | None:
    if schema.kind == _REGISTRY_KINDS[kind]:
        return None
    return f"schema id {schema.id} is of type {schema.kind}, not {_REGISTRY_KINDS[kind]}"


def _placed(parts: list[tuple[Indexes, Any]], count: int, columns: Any, is_good: Any) -> Any:
    """The structs of all parts at their rows; null at rows that are broken."""
    import numpy as np
    import pyarrow as pa

    if not parts:
        return pa.nulls(count, columns)
    if len(parts) == 1 and len(parts[0][0]) == count and is_good.all():
        return parts[0][1]
    places = np.zeros(count, np.int64)
    length = 0
    is_there = np.zeros(count, bool)
    for rows, found in parts:
        places[rows] = length + np.arange(len(rows))
        is_there[rows] = True
        length += len(found)
    values = pa.concat_arrays([found for _, found in parts])
    return values.take(pa.array(places, mask=~(is_there & is_good)))


class RecordEncoder(_Codec):
    """Of Avro, Protobuf, or JSON with a frame. `subject` names the schema in a registry. Without a
    schema, Avro's and JSON's are made of the columns."""

    def __init__(self, kind: str, columns: Any, *, subject: str = "", **more: Any) -> None:
        super().__init__(kind, columns, **more)
        self.subject = subject

    def check(self) -> None:
        """Raises SchemaError for columns that never fit; asks no registry."""
        if self.kind == JSON:
            _check_json(self._json_schema())
        elif not (self.kind == AVRO and self._uses_latest()):
            self._writer()

    def encode(self, rows: Any) -> Any:
        """A struct array to a binary array; of JSON, texts to a binary array."""
        import pyarrow as pa

        from tidelog.spark.codecs.framing import framed

        if self.kind == JSON:
            records = rows.cast(pa.binary())
        else:
            # Spark's timestamps come in the zone of the session.
            records = self._writer().write(rows.cast(self.columns))
        if not self.is_framed:
            return records
        schema_id, indexes = self._once("frame", self._frame)
        return framed(records, schema_id, indexes)

    def _uses_latest(self) -> bool:
        from tidelog.spark.codecs.schema_registry import RegistrySettings

        return isinstance(self.schemas, RegistrySettings) and self.schemas.uses_latest

    def _writer(self) -> Any:
        from tidelog.spark.codecs.avro_writer import AvroWriter
        from tidelog.spark.codecs.protobuf_columns import ProtobufWriter

        if self.kind == AVRO:
            return self._once("writer", lambda: AvroWriter(self._avro_schema(), self.columns))
        if self.kind == PROTOBUF:
            return self._once("writer", lambda: ProtobufWriter(self._own_schema(), self.columns))
        return None

    def _avro_schema(self) -> AvroSchema:
        from tidelog.spark.codecs.avro_schema import AvroSchema, schema_of_columns

        if self._uses_latest():
            latest = self._latest()
            references = [text for _, text in self._registry().references(latest)]
            return AvroSchema(latest.text, references)
        if self.schema:
            schema: AvroSchema = self._own_schema()
            return schema
        return AvroSchema(schema_of_columns(self.columns, self.subject.removesuffix("-value")))

    def _registry(self) -> Any:
        from tidelog.spark.codecs.schema_registry import schemas_of

        assert self.schemas is not None, "frames need schemas"
        return schemas_of(self.schemas)

    def _latest(self) -> RegisteredSchema:
        from tidelog.spark.codecs.errors import RegistryError

        latest: RegisteredSchema = self._registry().latest(self.subject)
        if problem := _wrong_kind(latest, self.kind):
            raise RegistryError(f"subject {self.subject}: {problem}")
        return latest

    def _frame(self) -> tuple[int, bytes]:
        """The id of the schema, and what stands behind it."""
        from tidelog.spark.codecs.framing import encoded_indexes

        if self.kind == PROTOBUF:
            own = self._own_schema()
            indexes = encoded_indexes(own.indexes)
            if self._uses_latest():
                return self._latest().id, indexes
            return self._registered_file(own.descriptor.file).id, indexes
        if self._uses_latest():
            return self._latest().id, b""
        kind = _REGISTRY_KINDS[self.kind]
        text = self._avro_schema().text if self.kind == AVRO else self._json_schema()
        return self._registry().written(self.subject, kind, text).id, b""

    def _json_schema(self) -> str:
        from tidelog.spark.codecs.json_schema import schema_of_columns

        return _text(self.schema) if self.schema else json.dumps(schema_of_columns(self.columns))

    def _registered_file(self, file: Any) -> RegisteredSchema:
        """With the files that it imports before it, each under its own name, as Confluent's
        serializers register them."""
        from tidelog.spark.codecs.protobuf_schema import file_text

        references = self._referred_files(file)
        found: RegisteredSchema = self._registry().written(
            self.subject, "PROTOBUF", file_text(file), references
        )
        return found

    def _referred_files(self, file: Any) -> tuple[Any, ...]:
        from tidelog.spark.codecs.protobuf_schema import dependencies, file_text

        return tuple(
            self._registry().referred(
                row.name, row.name, "PROTOBUF", file_text(row), self._referred_files(row)
            )
            for row in dependencies(file)
        )


def _text(schema: bytes) -> str:
    from tidelog.spark.codecs.errors import SchemaError

    try:
        return schema.decode()
    except UnicodeDecodeError:
        raise SchemaError("the schema is not UTF-8") from None


def _check_json(schema: str) -> None:
    from tidelog.spark.codecs.errors import SchemaError

    try:
        json.loads(schema)
    except (ValueError, RecursionError) as problem:
        raise SchemaError(f"the schema is no JSON: {problem}") from None


# Spark


def decoded(column: Column | str, decoder: RecordDecoder, parsed: DataType) -> Column:
    """A struct of `parsed`, whose type of Spark is given, and `reason`, of a binary column."""
    from pyspark.sql.types import StringType, StructField, StructType

    kind = StructType([StructField(PARSED_FIELD, parsed), StructField(REASON_FIELD, StringType())])
    return _arrow_function(decoder.decode, kind)(column)


def encoded(column: Column, encoder: RecordEncoder) -> Column:
    """A binary column of records, of a struct of columns, or of texts of JSON."""
    return _arrow_function(encoder.encode, "binary")(column)


def _arrow_function(run: Callable[[Any], Any], returned: DataType | str) -> Callable[..., Column]:
    """Not deterministic, or Spark would run it again for each filter and column above it."""
    import pyarrow as pa
    from pyspark.sql import functions as F

    def of_batch(array: Any) -> Any:
        return run(array)

    # Spark reads out of these what kind of function it is.
    of_batch.__annotations__ = {"array": pa.Array, "return": pa.Array}
    made: Any = F.arrow_udf(of_batch, returned)  # type: ignore[call-overload]
    function: Callable[..., Column] = made.asNondeterministic()
    return function


def arrow_type(kind: DataType) -> Any:
    """The type of Arrow in which Spark exchanges values of a type; raises TypeError."""
    import pyarrow as pa
    from pyspark.sql import types as T

    if isinstance(kind, T.StructType):
        return pa.struct(
            [pa.field(row.name, arrow_type(row.dataType), row.nullable) for row in kind.fields]
        )
    if isinstance(kind, T.ArrayType):
        return pa.list_(pa.field("element", arrow_type(kind.elementType), kind.containsNull))
    if isinstance(kind, T.MapType):
        value = pa.field("value", arrow_type(kind.valueType), kind.valueContainsNull)
        return pa.map_(pa.field("key", arrow_type(kind.keyType), False), value)
    if isinstance(kind, T.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    plain = {
        "boolean": pa.bool_(),
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }.get(kind.simpleString())
    if plain is None:
        raise TypeError(f"a column of type {kind.simpleString()} cannot be decoded or encoded")
    return plain
