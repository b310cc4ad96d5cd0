"""A measured figure beside its peer's, with its floor; the table of them, and the raw samples."""

from __future__ import annotations

import json
import os
import platform
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bridge.cli.build import BUILD

SAMPLES = Path("build/bench")
"""Where raw samples are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the report.

    Attributes:
        ours, peers: medians in `unit`.
        ratio: what is compared with the floor; `None` when the figure is only printed.
        floor: the least ratio (or, with `is_ceiling`, the greatest) that passes.
        samples: every raw sample, by whose it is.
    """

    name: str
    unit: str
    ours: float
    peer: str = ""
    peers: float | None = None
    ratio: float | None = None
    floor: float | None = None
    is_ceiling: bool = False
    rabbitmq: str = ""
    samples: dict[str, list[float]] = field(default_factory=dict)

    @property
    def passes(self) -> bool:
        """Whether the figure is on the right side of its floor."""
        if self.ratio is None or self.floor is None:
            return True
        return self.ratio <= self.floor if self.is_ceiling else self.ratio >= self.floor

    def line(self) -> str:
        """The figure as a line for people."""
        peers = f"{self.peers:>10.1f} {self.peer}" if self.peers is not None else " " * 10
        bound = ""
        if self.ratio is not None and self.floor is not None:
            sign = "<=" if self.is_ceiling else ">="
            verdict = "ok" if self.passes else "BELOW ITS FLOOR"
            bound = f"  {self.ratio:.2f} {sign} {self.floor:g}  {verdict}"
        return f"{self.name:<58} {self.ours:>10.1f} {self.unit:<6} | {peers}{bound}"


def compare(
    name: str,
    unit: str,
    ours: list[float],
    peers: list[float],
    *,
    peer: str,
    floor: float | None = None,
    rabbitmq: str = "",
) -> Figure:
    """Return the figure of two series of samples taken in the same run, by their medians."""
    mine, theirs = statistics.median(ours), statistics.median(peers)
    return Figure(
        name=name,
        unit=unit,
        ours=mine,
        peer=peer,
        peers=theirs,
        ratio=mine / theirs if theirs else None,
        floor=floor,
        rabbitmq=rabbitmq,
        samples={"ours": ours, peer: peers},
    )


def report(title: str, figures: list[Figure]) -> bool:
    """Print the figures, keep their samples, and return whether all pass."""
    SAMPLES.mkdir(parents=True, exist_ok=True)
    machine = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "bridge": BUILD,
    }
    print(f"\n{title}  (cores {machine['cores']}, Python {machine['python']}, bridge {BUILD})")
    for figure in figures:
        print(("  " if not figure.rabbitmq else f"  [{figure.rabbitmq}] ") + figure.line())
    kept = {"machine": machine, "figures": [asdict(figure) for figure in figures]}
    (SAMPLES / f"{title.replace(' ', '-').lower()}.json").write_text(json.dumps(kept, indent=1))
    return all(figure.passes for figure in figures)
