"""The classes that generated messages derive from.

A struct is a plain slots object, equal to another when all fields are. A message adds the tables of
its decoders and encoders by version, which its module fills in. Nothing here or in a message is
shared between threads or kept between calls.
"""

from __future__ import annotations

import struct
from types import GetSetDescriptorType
from typing import TYPE_CHECKING, Any, ClassVar

from tidelog.protocol.errors import DecodeError, EncodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

DECODE_FAILURES = (DecodeError, struct.error, IndexError, UnicodeDecodeError)
ENCODE_FAILURES = (struct.error, AttributeError, TypeError, ValueError)

# In constructors it stands for "a fresh empty list" or "a fresh struct", and is handed to nobody. A
# list, because compiled constructors look at the type.
EMPTY: Any = []


class Struct:
    """A group of fields."""

    __slots__: tuple[str, ...] = ()

    def field_names(self) -> Sequence[str]:
        """A compiled class has no slots: its fields are its only members that can be set."""
        return self.__slots__ or [
            name
            for name, member in vars(type(self)).items()
            if isinstance(member, GetSetDescriptorType)
        ]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.field_names())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.field_names())
        return f"{type(self).__name__}({fields})"


class Message(Struct):
    """The root struct of a request, a response or a stored record."""

    __slots__ = ()

    API_KEY: ClassVar[int] = -1
    RECORD_TYPE: ClassVar[int] = -1
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    DECODERS: ClassVar[Mapping[int, Callable[[memoryview, int], Any]]]
    ENCODERS: ClassVar[Mapping[int, Callable[..., Any]]]

    @classmethod
    def decode(cls, buffer: memoryview, position: int, version: int) -> Self:
        """The message that starts at `position`; bytes after it are not looked at."""
        try:
            message: Self = cls.DECODERS[version](buffer, position)
        except DECODE_FAILURES as error:
            raise DecodeError(f"{cls.__name__} v{version}: {error}") from error
        except KeyError:
            raise DecodeError(f"{cls.__name__} has no version {version}") from None
        return message

    def encode(self, version: int) -> bytearray:
        out = bytearray()
        try:
            self.ENCODERS[version](self, out)
        except ENCODE_FAILURES as error:
            raise EncodeError(f"{type(self).__name__} v{version}: {error}") from error
        except KeyError:
            raise EncodeError(f"{type(self).__name__} has no version {version}") from None
        return out


class RecordsMessage(Message):
    """A message with `records` fields, which need not be copied into the encoding."""

    __slots__ = ()

    def encode(self, version: int) -> bytearray:
        out = bytearray()
        self._encode(version, out, None)
        return out

    def encode_parts(self, version: int) -> list[Any]:
        """The encoding cut at every non-empty `records` value, which is its own, unread part."""
        parts: list[Any] = []
        rest = self._encode(version, bytearray(), parts)
        if rest:
            parts.append(rest)
        return parts

    def _encode(self, version: int, out: bytearray, parts: list[Any] | None) -> bytearray:
        try:
            rest: bytearray = self.ENCODERS[version](self, out, parts)
        except ENCODE_FAILURES as error:
            raise EncodeError(f"{type(self).__name__} v{version}: {error}") from error
        except KeyError:
            raise EncodeError(f"{type(self).__name__} has no version {version}") from None
        return rest


def absent(name: str) -> ValueError:
    return ValueError(f"the version has no field for a non-default {name}")


def null_given(name: str) -> TypeError:
    return TypeError(f"the version allows no null as {name}")
