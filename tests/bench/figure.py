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
        rounds: the ratio of each round, where ours and the peer's ran in turns.
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
    rounds: tuple[float, ...] = ()
    samples: dict[str, list[float]] = field(default_factory=dict)

    @property
    def passes(self) -> bool:
        """Whether the figure is on the right side of its floor, or misses it within its spread."""
        return self._meets(self.ratio) or self.is_within_spread

    @property
    def is_within_spread(self) -> bool:
        """Whether the median misses the floor and at least one of the rounds reached it."""
        return not self._meets(self.ratio) and any(self._meets(each) for each in self.rounds)

    def _meets(self, ratio: float | None) -> bool:
        if ratio is None or self.floor is None:
            return True
        return ratio <= self.floor if self.is_ceiling else ratio >= self.floor

    @property
    def _verdict(self) -> str:
        if self.is_within_spread:
            return f"missed within its rounds, {min(self.rounds):.2f} to {max(self.rounds):.2f}"
        return "ok" if self.passes else "BELOW ITS FLOOR"

    def line(self) -> str:
        """The figure as a line for people."""
        peers = f"{self.peers:>10.1f} {self.peer}" if self.peers is not None else " " * 10
        bound = ""
        if self.ratio is not None and self.floor is not None:
            sign = "<=" if self.is_ceiling else ">="
            bound = f"  {self.ratio:.2f} {sign} {self.floor:g}  {self._verdict}"
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
    """Return the figure of two series of samples taken in the same run, by their medians.

    Series of one length are taken for rounds: one of each in turn.
    """
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
        rounds=_rounds(ours, peers),
        samples={"ours": ours, peer: peers},
    )


def _rounds(ours: list[float], peers: list[float]) -> tuple[float, ...]:
    if len(ours) != len(peers) or not all(peers):
        return ()
    return tuple(mine / theirs for mine, theirs in zip(ours, peers, strict=True))


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
