"""What a reader returns, and where it notes down what it meets on the way."""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge.model import entity as model
from bridge.topology.resources import Finding
from policies.errors import Fault, Place, ReadError
from policies.readers.listing import Listing


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A namespace as an input defines it, and what of the input could not be taken over.

    Attributes:
        findings: what differs from the input.
        left_out: those of them of which the input has an entity, or may have one, that the
            namespace lacks. What is not in such a namespace is not known to be unwanted.
        listing: the lists of an input that is made of lists.
    """

    namespace: model.Namespace
    findings: tuple[Finding, ...] = ()
    left_out: tuple[Finding, ...] = ()
    listing: Listing | None = None

    @property
    def gaps(self) -> tuple[str, ...]:
        """What keeps the input from being the whole namespace, one sentence each."""
        unlisted = self.listing.missing(self.namespace) if self.listing else ()
        return (
            *(each.message for each in self.left_out),
            *(f"It has no list of {title}; an empty one will do." for title in unlisted),
        )


@dataclass(slots=True)
class Notes:
    """Faults and findings of one input, in the order in which they were met."""

    source: str
    faults: list[Fault] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    left_out: list[Finding] = field(default_factory=list)

    def fault(self, place: Place, message: str, remedy: str = "") -> None:
        """Note something that makes the input unreadable."""
        self.faults.append(Fault(place=place, message=message, remedy=remedy))

    def finding(
        self, place: Place, entity: str, prop: str, message: str, *, grade: str = "lost"
    ) -> None:
        """Note something that the namespace does not get from the input."""
        self.findings.append(
            Finding(
                entity=entity,
                property=prop,
                grade=grade,
                message=f"{self.source}: {place}: {message}",
            )
        )

    def leave_out(self, place: Place, entity: str, prop: str, message: str) -> None:
        """Note an entity, or what may be several, that the namespace does not get."""
        self.finding(place, entity, prop, message)
        self.left_out.append(self.findings[-1])

    def check(self) -> None:
        """Raise every fault so far at once, in the order of their lines."""
        if self.faults:
            unique = dict.fromkeys(self.faults)
            raise ReadError(self.source, sorted(unique, key=lambda fault: fault.place.line))
