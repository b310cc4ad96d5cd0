"""The changes of an action to a message: properties set, or removed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bridge.model.filters.values import Value


class Removed:
    """The class of `REMOVED`."""

    def __repr__(self) -> str:
        return "REMOVED"


REMOVED: Final = Removed()
"""The value of a change that removes a property."""


@dataclass(frozen=True, slots=True)
class PropertyChange:
    """A property that an action sets (`None`: to null) or removes (`REMOVED`).

    Attributes:
        is_system: `sys.`; `name` is then a key of `action.SETTABLE`.
        name: a user property's name as the message spells it, else as the action does.
    """

    is_system: bool
    name: str
    value: Value


Changes = tuple[PropertyChange, ...]
