"""Faults of a relay's file, each with its position."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from bridge.relay.plan.keys import Key
from bridge.relay.plan.positions import Path, Position, Positions


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """What is wrong with a file, and where."""

    position: Position
    text: str

    def __str__(self) -> str:
        return f"{self.position}: {self.text}"


class FaultyFile(Exception):
    """Error for a file that has faults.

    Attributes:
        faults: all, in the order of the file.
    """

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        super().__init__("; ".join(map(str, faults)))
        self.faults = faults


class Faults:
    """The faults of a file that is being read."""

    def __init__(self, positions: Positions) -> None:
        self.positions = positions
        self.found: list[Fault] = []

    def add(self, path: Path, text: str, *, at_key: bool = False) -> None:
        """Note a fault at a value, or at a key."""
        position = self.positions.of_key(path) if at_key else self.positions.of_value(path)
        self.found.append(Fault(position, text))

    def table(self, values: Any, path: Path, known: Mapping[str, Key]) -> dict[str, Any]:
        """Return the values of a table that are as they should be, and note the others."""
        if not isinstance(values, dict):
            self.add(path, "Here a table is due.")
            return {}
        found = {}
        for name, value in values.items():
            key = known.get(name)
            if key is None:
                text = f"There is no key {name!r} here{similar(name, known)}."
                self.add((*path, name), text, at_key=True)
            elif fault := key.fault_of(value):
                self.add((*path, name), f"{name}: {fault}.")
            else:
                found[name] = value
        return found


def similar(name: str, known: Iterable[str]) -> str:
    """Return the most similar of the known names, as the end of a sentence; "" for none."""
    found = get_close_matches(name, list(known), 1)
    return f" (did you mean {found[0]}?)" if found else ""
