"""The decorator that declares a composite type (see `composite`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar, dataclass_transform, get_type_hints

from bridge.wire.amqp10.composite import (
    BY_CLASS,
    BY_CODE,
    BY_SYMBOL,
    FIELD_WRITERS,
    Field,
    Layout,
    constants_of,
    readers_of,
    widths_of,
)
from bridge.wire.amqp10.primitives import encode_ulong

_T = TypeVar("_T")


@dataclass_transform()
def composite(code: int, symbol: str) -> Callable[[type[_T]], type[_T]]:
    """Declare a composite type with its descriptor, as a number and as a symbol."""

    def declare(cls: type[_T]) -> type[_T]:
        made = dataclass(slots=True)(cls)
        made.__annotations__ = cls.__annotations__
        hints = get_type_hints(made, include_extras=True)
        rows = []
        for item in fields(made):  # type: ignore[arg-type]
            type_name = _type_name(hints[item.name])
            default = item.default if item.default is not MISSING else None
            rows.append(
                Field(
                    name=item.name,
                    type=type_name,
                    is_mandatory=item.default is MISSING
                    and type(None) not in _parts(hints[item.name]),
                    default=default,
                    constants=constants_of(type_name, default),
                    widths=widths_of(type_name),
                    readers=None if type_name == "*" else readers_of(type_name),
                    write=FIELD_WRITERS[type_name],
                )
            )
        layout = Layout(
            cls=made,
            code=code,
            symbol=symbol,
            fields=tuple(rows),
            prefix=b"\x00" + encode_ulong(code),
        )
        BY_CLASS[made] = BY_CODE[code] = BY_SYMBOL[symbol] = layout
        return made

    return declare


def _parts(hint: Any) -> tuple[Any, ...]:
    return (hint, *getattr(hint, "__args__", ()))


def _type_name(hint: Any) -> str:
    for part in _parts(hint):
        for extra in getattr(part, "__metadata__", ()):
            assert isinstance(extra, str)
            return extra
    raise TypeError(f"{hint!r} names no AMQP 1.0 type")
