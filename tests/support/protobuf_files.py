"""Descriptors of a small shop, made without protoc.

shop/item.proto     Item { int64 sku = 1; }
shop/order.proto    Order { string id = 1; int64 cents = 2; repeated Item item = 3; }
                    Refund { string id = 1; message Reason { string id = 1; } }
"""

from __future__ import annotations

from typing import Any

_STRING, _INT64, _MESSAGE = 9, 3, 11
_OPTIONAL, _REPEATED = 1, 3


def shop_files() -> Any:
    """A FileDescriptorSet."""
    from google.protobuf import descriptor_pb2

    item = descriptor_pb2.FileDescriptorProto(
        name="shop/item.proto", package="shop", syntax="proto3"
    )
    message = item.message_type.add(name="Item")
    message.field.add(name="sku", number=1, type=_INT64, label=_OPTIONAL)
    order = descriptor_pb2.FileDescriptorProto(
        name="shop/order.proto",
        package="shop",
        syntax="proto3",
        dependency=["shop/item.proto"],
    )
    message = order.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=_STRING, label=_OPTIONAL)
    message.field.add(name="cents", number=2, type=_INT64, label=_OPTIONAL)
    message.field.add(name="item", number=3, type=_MESSAGE, label=_REPEATED, type_name=".shop.Item")
    refund = order.message_type.add(name="Refund")
    refund.field.add(name="id", number=1, type=_STRING, label=_OPTIONAL)
    reason = refund.nested_type.add(name="Reason")
    reason.field.add(name="id", number=1, type=_STRING, label=_OPTIONAL)
    return descriptor_pb2.FileDescriptorSet(file=[item, order])


def shop_descriptors() -> bytes:
    data: bytes = shop_files().SerializeToString()
    return data


def shop_messages() -> dict[str, Any]:
    """Classes by full name."""
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    for file in shop_files().file:
        pool.Add(file)
    names = ("shop.Item", "shop.Order", "shop.Refund", "shop.Refund.Reason")
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names
    }
