"""What an inspection finds."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.relay.plan.faults import Fault
from bridge.relay.plan.fidelity import Level
from bridge.relay.plan.positions import Position


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence about a place of the file.

    Attributes:
        level: see `plan.fidelity.Remark`.
        route: the route's name; "" for the file.
    """

    position: Position
    level: Level
    route: str
    text: str

    @classmethod
    def of_fault(cls, fault: Fault) -> Finding:
        """Return the finding that a fault of the file is."""
        return cls(fault.position, "error", "", fault.text)

    def row(self) -> dict[str, object]:
        """Return the row of a table."""
        return {
            "line": self.position.line,
            "column": self.position.column,
            "result": self.level,
            "route": self.route or None,
            "text": self.text,
        }
