"""Second copies: a queue's held and settled messages, by which a copy is recognised.

After a crash a queue can hold a message twice: a leader repeats publishes not known to have been
stored, and RabbitMQ may forget an ack. A copy is dropped only when its identity and number prove
that the message is settled; a copy without proof is delivered.

* **Held**: with a receiver, kept for a receiver, or leaving. A copy may be the held message itself,
  taken back by RabbitMQ and delivered again before this process hears of that, or without notice
  (when the nodes of a cluster lose sight of each other for a moment). So the copy **waits**,
  unacked. It is acked when the held message leaves the queue, and returned together with it.
* **Settled**: gone for good, by the digests of the last numbers (`settled`), within one incarnation
  of the entity, which counts from 1.
* **Dead-lettered**: gone, but a message that has been in the dead-letter queue is no copy: an
  operator has brought it back. Its deliveries are counted anew, so what was replaced before says
  nothing of it.
* **Deferred**: gone, but a message of a higher generation, or one that has been in the dead-letter
  queue, is no copy: an operator has brought it back.
* **Replaced**: put back with changes under its number and identity, as a higher generation. While
  this process puts it back, the new message is no copy. When a process died in between, the queue
  has both messages, and the second to be delivered is the copy.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterator
from enum import Enum
from hashlib import blake2b
from typing import Generic, Protocol, TypeVar

from bridge.machine.queue.settled import DIGEST_BYTES, SettledNumbers

REPLACED_MAX = 10_000
"""So many replaced messages are remembered."""

DEAD_LETTERED_MAX = 10_000
"""So many dead-lettered messages are remembered."""

DEFERRED_MAX = 10_000
"""So many deferred messages are remembered."""

Identity = bytes | tuple[int, int]
"""The identity that all copies of a message share, and no other message of its entity has.

A number is not enough: two messages may have one when RabbitMQ and a leader failed together. A
native message has number and enqueued time only.
"""

_NATIVE = struct.Struct(">qq")
_Key = tuple[int, Identity]

Copy = TypeVar("Copy")


class CopyableMessage(Protocol):
    """A message as `SecondCopies` sees it.

    Attributes:
        number: the sequence number, below 0 for a message without one.
        identity: see `Identity`.
        generation: the number of deliveries before the message was published again; of two copies
            the one of the higher generation counts.
        was_dead_lettered: the message has been in the dead-letter queue.
    """

    number: int
    identity: Identity
    generation: int

    @property
    def was_dead_lettered(self) -> bool:
        """Whether the message has been in the dead-letter queue."""


class CopyStatus(Enum):
    """The status of a message that has come."""

    NEW = "new"
    HELD = "held"
    SETTLED = "settled"


class Left(Enum):
    """How a message has left its queue."""

    SETTLED = "settled"
    DEAD_LETTERED = "dead-lettered"
    DEFERRED = "deferred"
    MOVED = "moved"
    REPLACED = "replaced"


class SecondCopies(Generic[Copy]):
    """The held and settled messages of one queue.

    Args:
        settled: the memory of settled messages.
    """

    def __init__(self, settled: SettledNumbers) -> None:
        self._settled = settled
        self._held: dict[_Key, int] = {}
        self._waiting: dict[_Key, list[tuple[int, Copy]]] = {}
        self._expected: dict[_Key, int] = {}
        self._replaced: OrderedDict[_Key, int] = OrderedDict()
        self._dead: OrderedDict[_Key, None] = OrderedDict()
        self._deferred: OrderedDict[_Key, int] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of held messages."""
        return len(self._held)

    def __repr__(self) -> str:
        waiting = sum(len(copies) for copies in self._waiting.values())
        return f"SecondCopies(held={len(self._held)}, waiting={waiting})"

    def status_of(self, message: CopyableMessage) -> CopyStatus:
        """Return the status of a message that has come.

        The caller holds a new message, unless the message is for another receiver, lets a copy of a
        held message `wait`, and drops a copy of a settled message.
        """
        if message.number < 0:
            return CopyStatus.NEW
        key = message.number, message.identity
        replaced = self._replaced.get(key)
        if replaced is not None and message.generation <= replaced:
            return CopyStatus.SETTLED
        if not message.was_dead_lettered and (
            key in self._dead or message.generation <= self._deferred.get(key, -1)
        ):
            return CopyStatus.SETTLED
        settled = self._settled.digest_of(message.number)
        if settled is not None and settled == digest(message.identity):
            return CopyStatus.SETTLED
        if key in self._held and self._is_held(key, message.generation):
            return CopyStatus.HELD
        return CopyStatus.NEW

    def hold(self, message: CopyableMessage) -> None:
        """Add a message to the held messages."""
        if message.number >= 0:
            self._held[message.number, message.identity] = message.generation

    def wait(self, message: CopyableMessage, copy: Copy) -> None:
        """Let a copy of a held message wait; `leave` or `take_free` returns the copy."""
        key = message.number, message.identity
        self._waiting.setdefault(key, []).append((message.generation, copy))

    def let_go(self, message: CopyableMessage) -> None:
        """Remove a held message that goes back to the queue; the message may come again."""
        self._end((message.number, message.identity), message.generation)

    def take_free(self, message: CopyableMessage) -> list[Copy]:
        """Return a message's copies that need not wait any more, to be returned to the queue."""
        if not self._waiting:
            return []
        key = message.number, message.identity
        return self._take(key, [each for each in self._waits(key) if not self._is_held(key, each)])

    def expect(self, message: CopyableMessage, generation: int) -> None:
        """Note that a message is being put back with changes, as this generation."""
        self._expected[message.number, message.identity] = generation

    def expect_no_more(self, message: CopyableMessage) -> None:
        """Note that putting a message back has ended, with success or not."""
        self._expected.pop((message.number, message.identity), None)

    def leave(self, message: CopyableMessage, how: Left) -> list[Copy]:
        """Remove a held message that has left the queue; return copies to be dropped, too."""
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
            self._replaced.pop(key, None)
            self._dead[key] = None
            if len(self._dead) > DEAD_LETTERED_MAX:
                self._dead.popitem(last=False)
        elif how is Left.DEFERRED:
            self._deferred[key] = message.generation
            self._deferred.move_to_end(key)
            if len(self._deferred) > DEFERRED_MAX:
                self._deferred.popitem(last=False)
        if not self._waiting:
            return []
        is_all = how is not Left.REPLACED
        return self._take(
            key, [each for each in self._waits(key) if is_all or each <= message.generation]
        )

    def lose(self) -> None:
        """Forget held and waiting messages: RabbitMQ took them back; settled ones stay settled."""
        self._held.clear()
        self._waiting.clear()
        self._expected.clear()

    def held(self) -> Iterator[int]:
        """Yield the numbers of the held messages."""
        return (number for number, _ in self._held)

    def settled(self) -> Iterator[int]:
        """Yield the numbers known to be settled."""
        return self._settled.numbers()

    def forget(self) -> None:
        """Forget messages that have left: the entity was created again, and counts from 1."""
        self._settled.forget()
        self._replaced.clear()
        self._dead.clear()
        self._deferred.clear()

    def close(self) -> None:
        """Free the memory of settled messages: no more messages come."""
        self._settled.forget()

    def _end(self, key: _Key, generation: int) -> None:
        if self._held.get(key) == generation:
            del self._held[key]

    def _is_held(self, key: _Key, generation: int) -> bool:
        """Whether a message is held, and the message of this generation does not replace it."""
        held = self._held.get(key)
        if held is None:
            return False
        return generation <= held or self._expected.get(key) != generation

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
