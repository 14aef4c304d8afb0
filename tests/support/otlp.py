"""MetricsData of OpenTelemetry as Google's protobuf writes it: another encoder than what is tested.

Only the fields that KIP-714 needs are declared, and one that the broker skips.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FIELD = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    "string": FIELD.TYPE_STRING,
    "double": FIELD.TYPE_DOUBLE,
    "sfixed64": FIELD.TYPE_SFIXED64,
    "fixed64": FIELD.TYPE_FIXED64,
    "int64": FIELD.TYPE_INT64,
    "bool": FIELD.TYPE_BOOL,
    "int32": FIELD.TYPE_INT32,
}
MESSAGES = {
    "AnyValue": ["1 string_value string", "2 bool_value bool", "3 int_value int64"],
    "KeyValue": ["1 key string", "2 value AnyValue"],
    "Resource": ["1 attributes *KeyValue"],
    "NumberDataPoint": [
        "7 attributes *KeyValue",
        "3 time_unix_nano fixed64",
        "4 as_double double",
        "6 as_int sfixed64",
    ],
    "HistogramDataPoint": ["9 attributes *KeyValue", "4 count fixed64", "5 sum double"],
    "Gauge": ["1 data_points *NumberDataPoint"],
    "Sum": [
        "1 data_points *NumberDataPoint",
        "2 aggregation_temporality int32",
        "3 is_monotonic bool",
    ],
    "Histogram": ["1 data_points *HistogramDataPoint", "2 aggregation_temporality int32"],
    "Metric": ["1 name string", "5 gauge Gauge", "7 sum Sum", "9 histogram Histogram"],
    "ScopeMetrics": ["2 metrics *Metric"],
    "ResourceMetrics": ["1 resource Resource", "2 scope_metrics *ScopeMetrics"],
    "MetricsData": ["1 resource_metrics *ResourceMetrics"],
}


def _metrics_data_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="tests/otlp.proto", package="tests.otlp", syntax="proto2"
    )
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for row in fields:
            number, field_name, kind = row.split()
            field = message.field.add(name=field_name, number=int(number))
            field.label = FIELD.LABEL_REPEATED if kind[0] == "*" else FIELD.LABEL_OPTIONAL
            kind = kind.lstrip("*")
            if kind in SCALARS:
                field.type = SCALARS[kind]
            else:
                field.type, field.type_name = FIELD.TYPE_MESSAGE, f".tests.otlp.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindMessageTypeByName("tests.otlp.MetricsData")
    return message_factory.GetMessageClass(found)


MetricsData = _metrics_data_class()


def pairs(attributes: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"string_value": text}} for key, text in attributes.items()]


def point(value: float, **attributes: str) -> dict[str, Any]:
    field = "as_int" if isinstance(value, int) else "as_double"
    return {field: value, "attributes": pairs(attributes), "time_unix_nano": 7}


def gauge(name: str, *points: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "gauge": {"data_points": points}}


def counter(name: str, *points: dict[str, Any], delta: bool = True) -> dict[str, Any]:
    temporality = 1 if delta else 2
    body = {"data_points": points, "aggregation_temporality": temporality, "is_monotonic": True}
    return {"name": name, "sum": body}


def metrics_data(*metrics: dict[str, Any], **resource: str) -> bytes:
    scope = {"metrics": metrics}
    one = {"resource": {"attributes": pairs(resource)}, "scope_metrics": [scope]}
    encoded: bytes = MetricsData(resource_metrics=[one]).SerializeToString()
    return encoded
