"""Exchanges and queues that confirm nothing: since when, for health."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from bridge.broker.errors import BrokerError
from bridge.engine.clock import now_ms


@dataclass(slots=True)
class _Silence:
    """The silence of a target: its begin, and the last time it was seen (the loop's clock)."""

    since_ms: int
    seen_s: float = 0.0


class Silences:
    """The silent targets of one publishing connection.

    Args:
        forget_s: the time after which a silent target without publishes is forgotten.
    """

    def __init__(self, forget_s: float) -> None:
        self._forget_s = forget_s
        self._time_s = asyncio.get_running_loop().time
        self._all: dict[str, _Silence] = {}

    def __contains__(self, target: object) -> bool:
        return target in self._all

    def note(self, target: str, silent_s: float) -> None:
        """Note that a target has confirmed nothing for so long."""
        since_ms = now_ms() - int(silent_s * 1000)
        self._all.setdefault(target, _Silence(since_ms)).seen_s = self._time_s()

    def note_outcome(self, target: str, error: BrokerError | None) -> None:
        """Note a publish's outcome: a confirm ends a silence, an error begins or prolongs it."""
        if error is None:
            del self._all[target]
        else:
            self.note(target, 0.0)

    @property
    def since_ms(self) -> dict[str, int]:
        """By silent target: the time since when (UTC ms)."""
        now_s = self._time_s()
        for target, silence in list(self._all.items()):
            if now_s - silence.seen_s > self._forget_s:
                del self._all[target]
        return {target: silence.since_ms for target, silence in self._all.items()}
