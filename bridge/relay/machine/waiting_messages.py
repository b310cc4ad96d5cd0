"""The messages of a hand-over that wait to be sent, and the batches that they go in."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from bridge.relay.machine.effects import Arrival
from bridge.relay.machine.hand_over_rules import HandOverRules


@dataclass(slots=True, eq=False)
class HeldMessage:
    """A message in hand.

    Attributes:
        arrival: as it has come last, with the lock that is valid.
        share_max: messages of the largest batch that it may be in.
    """

    arrival: Arrival
    share_max: int


class WaitingMessages:
    """Messages in the order in which they are sent."""

    def __init__(self) -> None:
        self._waiting: deque[HeldMessage] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[HeldMessage]:
        return iter(self._waiting)

    def add(self, held: HeldMessage) -> None:
        """Add a message at the end."""
        self._waiting.append(held)

    def put_back(self, batch: Iterable[HeldMessage]) -> None:
        """Put a batch in front."""
        self._waiting.extendleft(reversed(tuple(batch)))

    def take(self, keys: Collection[int] | None = None) -> tuple[HeldMessage, ...]:
        """Return those of these keys, and have them no more; `None`: all."""
        found = tuple(each for each in self._waiting if keys is None or each.arrival.key in keys)
        if len(found) == len(self._waiting):
            self._waiting.clear()
        elif found:
            gone = {each.arrival.key for each in found}
            self._waiting = deque(each for each in self._waiting if each.arrival.key not in gone)
        return found

    def next_batch(self, rules: HandOverRules, left: int | None) -> tuple[HeldMessage, ...]:
        """Take what shares a batch, in order; one message at least.

        Args:
            left: how many may be sent now; `None` for any number.
        """
        found = [self._waiting.popleft()]
        group = found[0].arrival.group
        size = found[0].arrival.size_bytes
        most = min(found[0].share_max, rules.messages_max, left or found[0].share_max)
        while self._waiting and len(found) < most:
            held = self._waiting[0]
            size += held.arrival.size_bytes
            most = min(most, held.share_max)
            if held.arrival.group != group or size > rules.bytes_max or len(found) >= most:
                break
            found.append(self._waiting.popleft())
        return tuple(found)


def keys_of(messages: Iterable[HeldMessage]) -> tuple[int, ...]:
    """Return the keys of messages, in order."""
    return tuple(each.arrival.key for each in messages)
