"""Losses of an input: their names, and the losses that no user has accepted.

A loss's name is `ENTITY:PROPERTY`, as the report writes both; a loss of the namespace itself has
the entity `namespace`. In the name of an accepted loss, `*` stands for any text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from bridge.topology.resources import Finding
from policies import report
from policies.grade import Flavour
from policies.readers import Reading

NAMESPACE = "namespace"


class UnacceptedLosses(ValueError):
    """An input has losses that nobody has accepted; `str()` names all of them."""


def of(reading: Reading, flavour: Flavour, version: str) -> tuple[Finding, ...]:
    """Return the losses of an input with a flavour on a version of RabbitMQ."""
    made = report.make(reading, flavours=[flavour], versions=[version])
    return made.losses((flavour, version))


def name_of(loss: Finding) -> str:
    """Return the name by which a loss is accepted."""
    return f"{loss.entity or NAMESPACE}:{loss.property}"


def unaccepted(losses: Iterable[Finding], accepted: Sequence[str]) -> tuple[Finding, ...]:
    """Return the losses that no accepted name matches; names are not case-sensitive."""
    patterns = [_pattern(name) for name in accepted]
    return tuple(
        loss
        for loss in losses
        if not any(fnmatchcase(name_of(loss).lower(), pattern) for pattern in patterns)
    )


def check(losses: Iterable[Finding], accepted: Sequence[str]) -> None:
    """Raise when no accepted name matches a loss.

    Raises:
        UnacceptedLosses: naming all such losses.
    """
    if left := unaccepted(losses, accepted):
        raise UnacceptedLosses("\n".join(lines(left)))


def _pattern(name: str) -> str:
    """Return a name as a pattern of `fnmatch`, in which only `*` is a wildcard."""
    return name.strip().lower().replace("[", "[[]").replace("?", "[?]")


def lines(losses: Iterable[Finding]) -> list[str]:
    """Return a line for each loss: its name and its message."""
    return [f"lost: {name_of(loss)}: {loss.message}".rstrip(": ") for loss in losses]
