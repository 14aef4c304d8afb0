"""From the Arrow type that a format gives to the type of the declared column.

A value goes into a column that can hold it exactly: numbers into wider and, where they fit,
narrower ones, decimals of another scale, texts of times and decimals into their types. Everything
goes into a string, as the text that it has in JSON: times in ISO 8601, bytes in base64, what is
nested as JSON. A number in a timestamp column is in seconds. Times without a zone are in the zone
of the session.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import decimal
import json
import re
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

Convert = Callable[[Any], Any]

TIMESTAMP: Final = pa.timestamp("us", "UTC")
TIMESTAMP_NTZ: Final = pa.timestamp("us")
_ZONE_AT_END = re.compile(r"(Z|[+-]\d\d:?(\d\d)?)$")
_SPARK_NAMES: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    TIMESTAMP: "timestamp",
    TIMESTAMP_NTZ: "timestamp_ntz",
}


def spark_name(kind: Any) -> str:
    if kind in _SPARK_NAMES:
        return _SPARK_NAMES[kind]
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if types.is_map(kind):
        return f"map<{spark_name(kind.key_type)},{spark_name(kind.item_type)}>"
    if types.is_list(kind):
        return f"array<{spark_name(kind.value_type)}>"
    if types.is_struct(kind):
        return f"struct<{','.join(f'{row.name}:{spark_name(row.type)}' for row in kind)}>"
    return str(kind)


def conversion(found: Any, wanted: Any, zone: str) -> Convert | None:
    """How values of Arrow's type `found` become `wanted`; None when they never do.

    The function raises for an array with a value that does not fit.
    """
    if found == wanted:
        return _same
    if types.is_null(found):
        return lambda array: pa.nulls(len(array), wanted)
    if types.is_string(wanted):
        return _to_text(found)
    if types.is_integer(found):
        return _from_integer(found, wanted)
    if types.is_floating(found):
        if types.is_floating(wanted):
            return lambda array: array.cast(wanted, safe=False)
        return (lambda array: array.cast(wanted)) if types.is_decimal(wanted) else None
    if types.is_decimal(found):
        if types.is_decimal(wanted) or types.is_floating(wanted):
            return lambda array: array.cast(wanted)
        return None
    if types.is_string(found):
        return _from_text(wanted, zone)
    if types.is_time(found) and types.is_integer(wanted):
        return lambda array: array.cast(_stored(found)).cast(wanted)
    return _from_moment(found, wanted, zone)


def _same(array: Any) -> Any:
    return array


def _stored(kind: Any) -> Any:
    return pa.int32() if kind.bit_width == 32 else pa.int64()


def _from_integer(found: Any, wanted: Any) -> Convert | None:
    if types.is_integer(wanted):
        return lambda array: array.cast(wanted)
    if types.is_floating(wanted):
        return lambda array: array.cast(wanted, safe=False)
    if types.is_decimal(wanted):
        return lambda array: array.cast(pa.decimal128(38, 0)).cast(wanted)
    if wanted == TIMESTAMP:
        return lambda array: pc.multiply_checked(array.cast(pa.int64()), 1_000_000).cast(wanted)
    return None


def _from_text(wanted: Any, zone: str) -> Convert | None:
    if wanted == TIMESTAMP:
        return lambda array: _timestamps(array, zone)
    if types.is_binary(wanted):
        return lambda array: pa.array(map(_from_base64, array.to_pylist()), wanted)
    if types.is_decimal(wanted):
        return lambda array: pa.array(map(_from_digits, array.to_pylist()), wanted)
    if types.is_date(wanted) or types.is_timestamp(wanted):
        return lambda array: array.cast(wanted)
    return None


def _timestamps(array: Any, zone: str) -> Any:
    def moment(text: str | None) -> Any:
        if text is None:
            return None
        if _ZONE_AT_END.search(text):
            return pa.scalar(text).cast(TIMESTAMP).value
        local = pa.array([text]).cast(TIMESTAMP_NTZ)
        return pc.assume_timezone(local, zone)[0].value

    return pa.array(map(moment, array.to_pylist()), pa.int64()).cast(TIMESTAMP)


def _from_base64(text: str | None) -> bytes | None:
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except binascii.Error as problem:
        raise ValueError(str(problem)) from None


def _from_digits(text: str | None) -> decimal.Decimal | None:
    return None if text is None else decimal.Decimal(text)


def _from_moment(found: Any, wanted: Any, zone: str) -> Convert | None:
    if types.is_date(found) and types.is_timestamp(wanted):
        return lambda array: _zoned(array.cast(TIMESTAMP_NTZ), wanted, zone)
    if not types.is_timestamp(found):
        return None
    if types.is_date(wanted):
        return lambda array: array.cast(TIMESTAMP_NTZ).cast(wanted)
    if found == TIMESTAMP_NTZ and wanted == TIMESTAMP:
        return lambda array: _zoned(array, wanted, zone)
    if found == TIMESTAMP and wanted == TIMESTAMP_NTZ:
        return lambda array: array.cast(wanted)
    return None


def _zoned(array: Any, wanted: Any, zone: str) -> Any:
    return pc.assume_timezone(array, zone).cast(wanted) if wanted == TIMESTAMP else array


def _to_text(found: Any) -> Convert:
    if types.is_integer(found) or types.is_boolean(found):
        return lambda array: array.cast(pa.string())

    def text(value: Any) -> str | None:
        if value is None:
            return None
        return json_text(_json_value(value, found))

    return lambda array: pa.array(map(text, array.to_pylist()), pa.string())


def json_text(plain: Any) -> str:
    """As Spark gives what is nested in JSON to a column of texts."""
    if isinstance(plain, str):
        return plain
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False)


def _json_value(value: Any, kind: Any) -> Any:
    """What JSON can hold, of a value that Arrow gave."""
    if value is None:
        return None
    if types.is_map(kind):
        return {str(key): _json_value(item, kind.item_type) for key, item in value}
    if types.is_struct(kind):
        return {row.name: _json_value(value[row.name], row.type) for row in kind}
    if types.is_list(kind):
        return [_json_value(item, kind.value_type) for item in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value) if isinstance(value, decimal.Decimal) else value
