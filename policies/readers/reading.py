"""A reader's result, and its notes of faults and findings."""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge.model import entity as model
from bridge.topology.resources import Finding
from policies.errors import Fault, Position, ReadError
from policies.readers.listing import Listing


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A namespace as an input defines it, and the differences between the two.

    Attributes:
        findings: differences between the namespace and the input.
        left_out: the findings about entities that the input has, or may have, and the namespace
            lacks. With such findings, an entity that the namespace lacks may still be wanted.
        listing: the lists of an input that is made of lists; `None` for another input.
    """

    namespace: model.Namespace
    findings: tuple[Finding, ...] = ()
    left_out: tuple[Finding, ...] = ()
    listing: Listing | None = None

    @property
    def gaps(self) -> tuple[str, ...]:
        """Reasons why the input may not define the whole namespace, one sentence each."""
        unlisted = self.listing.missing(self.namespace) if self.listing else ()
        return (
            *(each.message for each in self.left_out),
            *(f"It has no list of {title}; an empty one will do." for title in unlisted),
        )


@dataclass(slots=True)
class Notes:
    """Faults and findings of one input, in the order in which the reader noted them."""

    source: str
    faults: list[Fault] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    left_out: list[Finding] = field(default_factory=list)

    def fault(self, place: Position, message: str, remedy: str = "") -> None:
        """Note a fault, which makes the input unreadable."""
        self.faults.append(Fault(place=place, message=message, remedy=remedy))

    def finding(
        self, place: Position, entity: str, prop: str, message: str, *, grade: str = "lost"
    ) -> None:
        """Note a finding: a difference between the namespace and the input."""
        self.findings.append(
            Finding(
                entity=entity,
                property=prop,
                grade=grade,
                message=f"{self.source}: {place}: {message}",
            )
        )

    def leave_out(self, place: Position, entity: str, prop: str, message: str) -> None:
        """Note a finding about an entity, or several, that the namespace lacks."""
        self.finding(place, entity, prop, message)
        self.left_out.append(self.findings[-1])

    def check(self) -> None:
        """Raise `ReadError` with all faults so far, in the order of their lines."""
        if self.faults:
            unique = dict.fromkeys(self.faults)
            raise ReadError(self.source, sorted(unique, key=lambda fault: fault.place.line))
