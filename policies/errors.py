"""Errors of an input: all its faults at once, each with place and remedy.

ReadError
  UnknownFormat
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A place in an input's text.

    Attributes:
        line: from 1; 0 when the line is not known.
        path: a JSON path such as `$.resources[2].name`, or the path of XML elements.
    """

    line: int = 0
    path: str = ""

    def __str__(self) -> str:
        line = f"line {self.line}" if self.line else ""
        return ", ".join(part for part in (line, self.path) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of an input, with its place and a remedy."""

    place: Position
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        return ": ".join(
            part
            for part in (str(self.place), " ".join(filter(None, (self.message, self.remedy))))
            if part
        )


class ReadError(ValueError):
    """An input that cannot be read; `str()` names the file, every fault, its place and remedy."""

    def __init__(self, source: str, faults: Sequence[Fault]) -> None:
        self.source = source
        self.faults = tuple(faults)
        super().__init__("\n".join(f"{source}: {fault}" for fault in self.faults))


class UnknownFormat(ReadError):
    """The input is in none of the formats that can be read."""
