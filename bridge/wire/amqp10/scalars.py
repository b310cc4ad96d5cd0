"""Python classes of AMQP 1.0's primitive types that Python has no class of its own for."""

from __future__ import annotations


class Ubyte(int):
    """Unsigned, 8 bits."""


class Ushort(int):
    """Unsigned, 16 bits."""


class Uint(int):
    """Unsigned, 32 bits."""


class Ulong(int):
    """Unsigned, 64 bits."""


class Byte(int):
    """Signed, 8 bits."""


class Short(int):
    """Signed, 16 bits."""


class Int(int):
    """Signed, 32 bits."""


class Long(int):
    """Signed, 64 bits; a plain `int` is written as one, too."""


class Timestamp(int):
    """Milliseconds since 1970-01-01 UTC."""


class Float(float):
    """IEEE 754 binary32; a plain `float` is a double."""


class Char(str):
    """One Unicode character."""

    __slots__ = ()


class Symbol(str):
    """ASCII text from a constrained domain."""

    __slots__ = ()


class Decimal32(bytes):
    """IEEE 754 decimal32, kept as its 4 bytes."""


class Decimal64(bytes):
    """IEEE 754 decimal64, kept as its 8 bytes."""


class Decimal128(bytes):
    """IEEE 754 decimal128, kept as its 16 bytes."""
