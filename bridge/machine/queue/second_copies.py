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
* **Dead-lettered**: gone, but a message that was dead-lettered more often is no copy: an operator
  has brought it back. Its deliveries are counted anew, so of two copies the one that was
  dead-lettered more often counts, then the one of the higher generation.
* **Deferred**: gone, but a message of a higher generation is no copy: an operator has brought it
  back.
* **Replaced**: put back with changes under its number and identity, as a higher generation. While
  this process puts it back, the new message is no copy. When a process died in between, the queue
  has both messages, and the second to be delivered is the copy.

A message that leaves a queue may come back there past this process: an operator moves it, and
another bridge may have dead-lettered it. So only the message itself says which of two is later.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterator
from enum import Enum
from hashlib import blake2b
from typing import Generic, Protocol, TypeVar

from bridge.machine.queue.settled import DIGEST_BYTES, SettledNumbers

LEFT_MAX = 30_000
"""So many messages that have left one queue for another place are remembered."""

Identity = bytes | tuple[int, int]
"""The identity that all copies of a message share, and no other message of its entity has.

A number is not enough: two messages may have one when RabbitMQ and a leader failed together. A
native message has number and enqueued time only.
"""

_NATIVE = struct.Struct(">qq")
_Key = tuple[int, Identity]

_Rank = tuple[int, int]
"""How often a message was dead-lettered, and its generation: of two copies the greater counts."""

_ANY_GENERATION = 1 << 62

Copy = TypeVar("Copy")


class CopyableMessage(Protocol):
    """A message as `SecondCopies` sees it.

    Attributes:
        number: the sequence number, below 0 for a message without one.
        identity: see `Identity`.
        generation: the number of deliveries before the message was published again; of two copies
            the one of the higher generation counts.
        deaths: how often it was dead-lettered before; its generation counts from 0 each time.
    """

    number: int
    identity: Identity
    generation: int

    @property
    def deaths(self) -> int:
        """How often the message was dead-lettered before."""


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


class LeftMessages:
    """The last messages that have left one queue for another place, and could come back."""

    def __init__(self) -> None:
        self._left: OrderedDict[_Key, _Rank] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of remembered messages."""
        return len(self._left)

    def has_copy(self, message: CopyableMessage) -> bool:
        """Whether a message that has come is a copy of one that has left, or is older."""
        if not self._left:
            return False
        left = self._left.get((message.number, message.identity))
        return left is not None and _rank(message) <= left

    def note(self, message: CopyableMessage, how: Left) -> None:
        """Note that a message has left its queue."""
        key = message.number, message.identity
        if how is Left.SETTLED:
            self._left.pop(key, None)
        elif how is not Left.MOVED:
            generation = message.generation
            rank = message.deaths, _ANY_GENERATION if how is Left.DEAD_LETTERED else generation
            self._left[key] = max(rank, self._left.get(key, rank))
            self._left.move_to_end(key)
            if len(self._left) > LEFT_MAX:
                self._left.popitem(last=False)

    def forget(self) -> None:
        """Forget all of them."""
        self._left.clear()


class SecondCopies(Generic[Copy]):
    """The held and settled messages of one queue.

    Args:
        settled: the memory of settled messages.
    """

    def __init__(self, settled: SettledNumbers) -> None:
        self._settled = settled
        self._left = LeftMessages()
        self._held: dict[_Key, _Rank] = {}
        self._waiting: dict[_Key, list[tuple[_Rank, Copy]]] = {}
        self._expected: dict[_Key, int] = {}

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
        if self._left.has_copy(message):
            return CopyStatus.SETTLED
        settled = self._settled.digest_of(message.number)
        if settled is not None and settled == digest(message.identity):
            return CopyStatus.SETTLED
        if key in self._held and self._is_held(key, _rank(message)):
            return CopyStatus.HELD
        return CopyStatus.NEW

    def hold(self, message: CopyableMessage) -> None:
        """Add a message to the held messages."""
        if message.number >= 0:
            self._held[message.number, message.identity] = _rank(message)

    def wait(self, message: CopyableMessage, copy: Copy) -> None:
        """Let a copy of a held message wait; `leave` or `take_free` returns the copy."""
        key = message.number, message.identity
        self._waiting.setdefault(key, []).append((_rank(message), copy))

    def let_go(self, message: CopyableMessage) -> None:
        """Remove a held message that goes back to the queue; the message may come again."""
        self._end((message.number, message.identity), _rank(message))

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
        rank = _rank(message)
        self._end(key, rank)
        if message.number < 0:
            return []
        if how is Left.SETTLED:
            self._settled.add(message.number, digest(message.identity))
        self._left.note(message, how)
        if not self._waiting:
            return []
        waits = self._waits(key)
        if how is Left.REPLACED:
            waits = [each for each in waits if each <= rank]
        elif how is Left.DEAD_LETTERED or how is Left.DEFERRED:
            waits = [each for each in waits if each[0] <= rank[0]]
        return self._take(key, waits)

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
        self._left.forget()

    def close(self) -> None:
        """Free the memory of settled messages: no more messages come."""
        self._settled.forget()

    def _end(self, key: _Key, rank: _Rank) -> None:
        if self._held.get(key) == rank:
            del self._held[key]

    def _is_held(self, key: _Key, rank: _Rank) -> bool:
        """Whether a message is held, and the message of this rank does not replace it."""
        held = self._held.get(key)
        if held is None:
            return False
        return rank <= held or self._expected.get(key) != rank[1]

    def _waits(self, key: _Key) -> list[_Rank]:
        return [rank for rank, _ in self._waiting.get(key, ())]

    def _take(self, key: _Key, ranks: list[_Rank]) -> list[Copy]:
        if not ranks:
            return []
        waiting = self._waiting.pop(key)
        rest = [each for each in waiting if each[0] not in ranks]
        if rest:
            self._waiting[key] = rest
        return [copy for rank, copy in waiting if rank in ranks]


def _rank(message: CopyableMessage) -> _Rank:
    return message.deaths, message.generation


def digest(identity: Identity) -> bytes:
    """Return 128 bits that tell an identity from others of the same number."""
    if isinstance(identity, tuple):
        return _NATIVE.pack(*identity)
    return blake2b(identity, digest_size=DIGEST_BYTES).digest()
