"""Python classes of AMQP 1.0's primitive types that Python has no class of its own for."""

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
    """Signed, 64 bits; a plain `int` is written as one, too."""

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


class KeyUuid(UUID):
    """A uuid as the key of a map: its hash cannot be chosen by who sends it.

    `UUID` takes its number's: thousands of equal ones make a dict quadratic. No other type that may
    be a key has more than a few dozen values of one hash, or a hash that can be known.
    """

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(self.bytes)
