"""From API key to the classes of its messages; a module is imported when first asked for."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.message import Message


@cache
def request_class(api_key: int) -> type[Message]:
    return _message_class(api_key, "Request")


@cache
def response_class(api_key: int) -> type[Message]:
    return _message_class(api_key, "Response")


def _message_class(api_key: int, kind: str) -> type[Message]:
    name = ApiKey(api_key).name.lower()
    module = import_module(f"tidelog.protocol.messages.{name}")
    words = "".join(word.capitalize() for word in name.split("_"))
    found: type[Message] = getattr(module, words + kind)
    return found
