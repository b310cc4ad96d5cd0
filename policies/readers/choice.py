"""Which of several namespaces of an input is read: a virtual host of RabbitMQ is one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from policies.errors import Place
from policies.readers.arm.unresolved import is_unresolved
from policies.readers.reading import Notes

T = TypeVar("T")


def of_one_namespace(
    notes: Notes,
    found: Sequence[T],
    name_of: Callable[[T], str],
    place_of: Callable[[T], Place],
    wanted: str | None,
    written_of: Callable[[T], str] = str,
) -> list[T]:
    """Return what belongs to the wanted namespace; what belongs to none that is known, too.

    Several and none wanted, or a wanted one that is not there, is a fault.

    Args:
        name_of: the namespace's name, "" when it is not known.
        written_of: how the input writes a name of which only Azure knows a part.
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
