"""Which messages of a queue are held or settled, so that a second copy is recognised.

After a crash a message can stand in its queue twice: a leader publishes again what it does not know
to be stored, and RabbitMQ may forget an ack. A copy is dropped only when it is known, by identity
and number, that the message is settled; what nothing proves is delivered.

* **Held**: with a receiver, kept for one, or leaving. A copy may be the held message itself, taken
  back by RabbitMQ and brought again before this process hears of that, or without a word (when the
  nodes of a cluster lose sight of each other for a moment). So it **waits**, unacked, and shares
  the fate of the held one: it goes when that leaves the queue, and else goes back as well.
* **Settled**: gone for good, by the digests of the last numbers (`settled`), within one incarnation
  of the entity, which counts from 1. What was deferred is not: an operator may bring it back.
* **Dead-lettered**: gone, but what has been in the dead-letter queue is none of its copies: an
  operator has brought it back.
* **Replaced**: put back with changes under its number and identity, as a higher generation. While
  this process does that, the new one is no copy; when a process died in between both are there, and
  whichever comes second is the copy.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterator
from enum import Enum
from hashlib import blake2b
from typing import Generic, Protocol, TypeVar

from bridge.machine.settled import DIGEST_BYTES, SettledNumbers

REPLACED_MAX = 10_000
"""So many messages are known to have been replaced."""

DEAD_LETTERED_MAX = 10_000
"""So many are known to have been dead-lettered."""

Identity = bytes | tuple[int, int]
"""What all copies of a message have in common, and no other message of its entity has.

Not its number: two messages may have one when RabbitMQ and a leader failed together. A native
message has number and enqueued time only.
"""

_NATIVE = struct.Struct(">qq")
_Key = tuple[int, Identity]

Copy = TypeVar("Copy")


class Message(Protocol):
    """What is told apart.

    Attributes:
        number: its sequence number, below 0 when it has none.
        identity: see `Identity`.
        generation: how often it had been delivered when it was published again; of two copies the
            one of the higher generation counts.
        was_dead_lettered: it has been in the dead-letter queue.
    """

    number: int
    identity: Identity
    generation: int

    @property
    def was_dead_lettered(self) -> bool:
        """See above."""


class CopyStatus(Enum):
    """What is known of a message that has come."""

    NEW = "new"
    HELD = "held"
    SETTLED = "settled"


class Left(Enum):
    """How a message has left its queue."""

    SETTLED = "settled"
    DEAD_LETTERED = "dead-lettered"
    MOVED = "moved"
    REPLACED = "replaced"


class Deduplicator(Generic[Copy]):
    """The messages of one queue.

    Args:
        settled: where the settled ones are remembered.
    """

    def __init__(self, settled: SettledNumbers) -> None:
        self._settled = settled
        self._held: dict[_Key, int] = {}
        self._waiting: dict[_Key, list[tuple[int, Copy]]] = {}
        self._expected: dict[_Key, int] = {}
        self._replaced: OrderedDict[_Key, int] = OrderedDict()
        self._dead: OrderedDict[_Key, None] = OrderedDict()

    def __len__(self) -> int:
        """Return how many messages are held."""
        return len(self._held)

    def __repr__(self) -> str:
        waiting = sum(len(copies) for copies in self._waiting.values())
        return f"Deduplicator(held={len(self._held)}, waiting={waiting})"

    def status_of(self, message: Message) -> CopyStatus:
        """Return what is known of a message that has come.

        A new one is to be held, unless it is somebody else's; a copy of a held one is to `wait`;
        one of a settled one is to be dropped.
        """
        if message.number < 0:
            return CopyStatus.NEW
        key = message.number, message.identity
        if self._is_gone(key, message):
            return CopyStatus.SETTLED
        return CopyStatus.HELD if self._is_held(key, message.generation) else CopyStatus.NEW

    def hold(self, message: Message) -> None:
        """A message has come and is held from now on."""
        if message.number >= 0:
            self._held[message.number, message.identity] = message.generation

    def wait(self, message: Message, copy: Copy) -> None:
        """A copy of a held message has come; `leave` or `take_free` returns it."""
        key = message.number, message.identity
        self._waiting.setdefault(key, []).append((message.generation, copy))

    def let_go(self, message: Message) -> None:
        """A message goes back to its queue, and may come again."""
        self._end((message.number, message.identity), message.generation)

    def take_free(self, message: Message) -> list[Copy]:
        """Return the copies of a message that wait for nothing any more: they go back, too."""
        if not self._waiting:
            return []
        key = message.number, message.identity
        return self._take(key, [each for each in self._waits(key) if not self._is_held(key, each)])

    def expect(self, message: Message, generation: int) -> None:
        """A message is being put back with changes, as this generation."""
        self._expected[message.number, message.identity] = generation

    def expect_no_more(self, message: Message) -> None:
        """That has ended, one way or the other."""
        self._expected.pop((message.number, message.identity), None)

    def leave(self, message: Message, how: Left) -> list[Copy]:
        """A held message has left its queue; return the copies that are to be dropped with it."""
        key = message.number, message.identity
        self._expected.pop(key, None)
        self._end(key, message.generation)
        if message.number < 0:
            return []
        if how is Left.SETTLED:
            self._settled.add(message.number, digest(message.identity))
            self._replaced.pop(key, None)
        elif how is Left.REPLACED:
            self._replaced[key] = message.generation
            self._replaced.move_to_end(key)
            if len(self._replaced) > REPLACED_MAX:
                self._replaced.popitem(last=False)
        elif how is Left.DEAD_LETTERED:
            self._dead[key] = None
            if len(self._dead) > DEAD_LETTERED_MAX:
                self._dead.popitem(last=False)
        if not self._waiting:
            return []
        is_all = how is not Left.REPLACED
        return self._take(
            key, [each for each in self._waits(key) if is_all or each <= message.generation]
        )

    def lose(self) -> None:
        """RabbitMQ has taken back what was held or waited; what is settled stays so."""
        self._held.clear()
        self._waiting.clear()
        self._expected.clear()

    def settled(self) -> Iterator[int]:
        """Yield the numbers that are known to be settled."""
        return self._settled.numbers()

    def forget(self) -> None:
        """The entity was made anew, and counts from 1: nothing of it is settled."""
        self._settled.forget()
        self._replaced.clear()
        self._dead.clear()

    def close(self) -> None:
        """Nothing comes any more: what is settled takes no room."""
        self._settled.forget()

    def _end(self, key: _Key, generation: int) -> None:
        if self._held.get(key) == generation:
            del self._held[key]

    def _is_held(self, key: _Key, generation: int) -> bool:
        """Whether a message is held that this one does not replace."""
        held = self._held.get(key)
        if held is None:
            return False
        return generation <= held or self._expected.get(key) != generation

    def _is_gone(self, key: _Key, message: Message) -> bool:
        replaced = self._replaced.get(key)
        if replaced is not None and message.generation <= replaced:
            return True
        if key in self._dead and not message.was_dead_lettered:
            return True
        number, identity = key
        settled = self._settled.digest_of(number)
        return settled is not None and settled == digest(identity)

    def _waits(self, key: _Key) -> list[int]:
        return [generation for generation, _ in self._waiting.get(key, ())]

    def _take(self, key: _Key, generations: list[int]) -> list[Copy]:
        if not generations:
            return []
        waiting = self._waiting.pop(key)
        rest = [each for each in waiting if each[0] not in generations]
        if rest:
            self._waiting[key] = rest
        return [copy for generation, copy in waiting if generation in generations]


def digest(identity: Identity) -> bytes:
    """Return 128 bits that tell an identity from others of the same number."""
    if isinstance(identity, tuple):
        return _NATIVE.pack(*identity)
    return blake2b(identity, digest_size=DIGEST_BYTES).digest()
