"""What `busbridge bench` does in a round, and whose rate it measures."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from bridge.operations.measurement import MessageAccount, RoundLimit

IN_SESSION: Final = 10
"""Messages of a session."""

WORKS: Final[Mapping[str, str]] = {
    "send": "single messages, one after another",
    "in-flight": "single messages, several unconfirmed at a time",
    "batches": "batches, one after another",
    "receive": "receive ahead, and complete",
    "schedule": "schedule in batches for in an hour; then cancel in batches",
    "sessions": f"sessions of {IN_SESSION}: accept the next, receive, complete, close",
}
"""The works, each with what it is."""

CANCEL: Final = "cancel"
"""The figure that `schedule` has besides its own."""

COME_S: Final = 45.0
"""A message that has not come for so long, and no other either, is missing; locks live longer."""

MORE_S: Final = 0.2
"""How long nothing more may come when all have."""


@dataclass(frozen=True, slots=True)
class BenchLoad:
    """How large messages are, how many are in flight, and how many a batch has."""

    size_bytes: int
    in_flight: int
    batch: int

    @property
    def body(self) -> bytes:
        """The body of each message."""
        return b"x" * self.size_bytes


class Bench(Protocol):
    """Who does the work: a namespace, or a peer.

    Attributes:
        name: for people and in rows.
    """

    name: str

    @property
    def works(self) -> Collection[str]:
        """Which works it does, of `WORKS`."""

    async def round(
        self, work: str, limit: RoundLimit, account: MessageAccount
    ) -> Mapping[str, float]:
        """Do a round, and return the rates that it has measured, by name.

        Afterwards all its messages have come, or are missing in the account.
        """
