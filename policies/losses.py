"""What is lost, for every command: the names by which it can be accepted, and what is not yet.

A name is `ENTITY:PROPERTY`, as the report has them; what concerns the namespace has the entity
`namespace`. In a name that accepts, `*` stands for anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from bridge.topology.resources import Finding
from policies import report
from policies.grade import Flavour
from policies.readers import Reading

NAMESPACE = "namespace"


class Lost(ValueError):
    """Something is lost that nobody has accepted; `str()` names all of it."""


def of(reading: Reading, flavour: Flavour, version: str) -> tuple[Finding, ...]:
    """Return what a flavour loses of an input on a RabbitMQ."""
    made = report.make(reading, flavours=[flavour], versions=[version])
    return made.losses((flavour, version))


def name_of(loss: Finding) -> str:
    """Return the name by which a loss is accepted."""
    return f"{loss.entity or NAMESPACE}:{loss.property}"


def unaccepted(losses: Iterable[Finding], accepted: Sequence[str]) -> tuple[Finding, ...]:
    """Return the losses that no name takes; names are not case-sensitive."""
    patterns = [_pattern(name) for name in accepted]
    return tuple(
        loss
        for loss in losses
        if not any(fnmatchcase(name_of(loss).lower(), pattern) for pattern in patterns)
    )


def check(losses: Iterable[Finding], accepted: Sequence[str]) -> None:
    """Raise when something is lost that no name takes.

    Raises:
        Lost: naming all of it.
    """
    if left := unaccepted(losses, accepted):
        raise Lost("\n".join(lines(left)))


def _pattern(name: str) -> str:
    """Return what `fnmatch` takes: of its letters, only `*` means more than itself."""
    return name.strip().lower().replace("[", "[[]").replace("?", "[?]")


def lines(losses: Iterable[Finding]) -> list[str]:
    """Return a line for each loss: its name, and what that means."""
    return [f"lost: {name_of(loss)}: {loss.message}".rstrip(": ") for loss in losses]
