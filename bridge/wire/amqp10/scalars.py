"""Classes for primitive types of AMQP 1.0 that have no class in Python, and for encoded values."""

from __future__ import annotations

from uuid import UUID


class Ubyte(int):
    """Unsigned, 8 bits."""

    __slots__ = ()


class Ushort(int):
    """Unsigned, 16 bits."""

    __slots__ = ()


class Uint(int):
    """Unsigned, 32 bits."""

    __slots__ = ()


class Ulong(int):
    """Unsigned, 64 bits."""

    __slots__ = ()


class Byte(int):
    """Signed, 8 bits."""

    __slots__ = ()


class Short(int):
    """Signed, 16 bits."""

    __slots__ = ()


class Int(int):
    """Signed, 32 bits."""

    __slots__ = ()


class Long(int):
    """Signed, 64 bits; a plain `int` is written as a long, too."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970-01-01 UTC."""

    __slots__ = ()


class Float(float):
    """IEEE 754 binary32; a plain `float` is a double."""

    __slots__ = ()


class Char(str):
    """One Unicode character."""

    __slots__ = ()


class Symbol(str):
    """ASCII text from a constrained domain."""

    __slots__ = ()


class Decimal32(bytes):
    """IEEE 754 decimal32, kept as its 4 bytes."""

    __slots__ = ()


class Decimal64(bytes):
    """IEEE 754 decimal64, kept as its 8 bytes."""

    __slots__ = ()


class Decimal128(bytes):
    """IEEE 754 decimal128, kept as its 16 bytes."""

    __slots__ = ()


class Encoded(bytes):
    """The bytes of a whole value, which are written as they are."""

    __slots__ = ()


class KeyUuid(UUID):
    """A uuid as the key of a map, with a hash that a sender cannot choose.

    The hash of a `UUID` is its number's: thousands of keys with one hash make a dict quadratic. Any
    other type of a key has at most a few dozen values of one hash, or a hash that no sender knows.
    """

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(self.bytes)
