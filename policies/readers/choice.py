"""The choice of one namespace in an input: a virtual host of RabbitMQ holds one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from policies.errors import Position
from policies.readers.arm.unresolved import is_unresolved
from policies.readers.reading import Notes

T = TypeVar("T")


def of_one_namespace(
    notes: Notes,
    found: Sequence[T],
    name_of: Callable[[T], str],
    place_of: Callable[[T], Position],
    wanted: str | None,
    written_of: Callable[[T], str] = str,
) -> list[T]:
    """Return the items of the wanted namespace, and those whose namespace is not known.

    Two faults are noted: several namespaces of which none is `wanted`, and a `wanted` namespace
    that is not in the input.

    Args:
        name_of: returns the name of an item's namespace, or "" when it is not known.
        written_of: returns the input's text of a name of which only Azure knows a part.
    """
    first: dict[str, T] = {}
    for each in found:
        if name_of(each):
            first.setdefault(name_of(each).lower(), each)
    names = ", ".join(
        written_of(each) if is_unresolved(name_of(each)) else repr(name_of(each))
        for each in first.values()
    )
    if wanted is None:
        if len(first) > 1:
            wanted = next(iter(first))
            notes.fault(
                place_of([*first.values()][1]),
                f"The input has {len(first)} namespaces: {names}.",
                "Say which one with --namespace NAME: a RabbitMQ virtual host is one.",
            )
        else:
            return list(found)
    if len(first) == 1 and is_unresolved(name_of(next(iter(first.values())))):
        return list(found)
    if first and wanted.lower() not in first:
        notes.fault(
            place_of(next(iter(first.values()))),
            f"The input has no namespace {wanted!r}.",
            f"It has {names}.",
        )
    return [each for each in found if name_of(each).lower() in ("", wanted.lower())]
