"""The messages that were imported last: each is known when it comes again.

    deferred   count u32 of the pairs | short id, 6 bytes | deferred messages u32, repeated
    messages   short id, 6 bytes | number i64 | identity, 20 bytes, repeated; oldest first

They are kept while the entity is held. A run that was killed sends its last messages again; what it
has imported long before it sees at the target.
"""

from __future__ import annotations

import struct

from bridge.wire import copies, headers
from bridge.wire.basic import Table, bytes_in
from bridge.wire.gaps import OWN
from bridge.wire.sections import MalformedEntry

KEPT = 10_000
"""So many messages are known; of older ones the entity knows only that the number is given."""

_COUNT = struct.Struct(">I")
_DEFERRED = struct.Struct(">6sI")
_MESSAGE = struct.Struct(">6sq20s")


class ImportedMessages:
    """The last imported messages of an entity.

    Attributes:
        deferred: how many deferred messages were imported, by short id.
        has_new: a message was imported that no earlier term had: what earlier terms left unacked
            has come again then, and is on its way.
        again: the highest numbers of messages that came again in this term, by short id and
            partition: what has a lower one has come again before, or has arrived.
    """

    def __init__(self) -> None:
        self.deferred: dict[bytes, int] = {}
        self.has_new = False
        self.again: dict[tuple[bytes, int], int] = {}
        self._identities: dict[tuple[bytes, int], bytes] = {}

    def __len__(self) -> int:
        return len(self._identities)

    def has(self, short: bytes, number: int, identity: bytes) -> bool:
        """Whether this very message was imported under this number."""
        return self._identities.get((short, number)) == identity

    def has_number(self, short: bytes, number: int) -> bool:
        """Whether a message was imported under this number, as far as is known."""
        return (short, number) in self._identities

    def note(self, short: bytes, number: int, identity: bytes, *, is_deferred: bool) -> None:
        """Note a message; the same one is counted once."""
        identities = self._identities
        if (short, number) in identities:
            return
        if len(identities) >= KEPT:
            del identities[next(iter(identities))]
        identities[short, number] = identity
        if is_deferred:
            self.deferred[short] = self.deferred.get(short, 0) + 1

    def learn(self, table: Table, number: int, identity: bytes) -> None:
        """Learn a message of the journal, if it was imported, by its headers.

        Args:
            number: the entity's own; a subscription's is in the headers.
        """
        if headers.IMPORTED not in table:
            return
        short, raw = OWN, bytes_in(table, headers.COPIES)
        if raw is not None:
            ((short, number),) = copies.decode(raw)[0]
        self.note(short, number, identity, is_deferred=headers.DEFERRED in table)

    def expect_deferred(self, short: bytes, count: int) -> None:
        """Note that there are at least so many deferred messages, by RabbitMQ's count."""
        if count > self.deferred.get(short, 0):
            self.deferred[short] = count

    def follow(self, *, is_held: bool) -> None:
        """Forget all when the entity is not held any more."""
        if not is_held:
            self.deferred.clear()
            self._identities.clear()

    def encode(self) -> bytes:
        """Return all as bytes; b"" for nothing."""
        if not self._identities and not self.deferred:
            return b""
        parts = [_COUNT.pack(len(self.deferred))]
        parts += [_DEFERRED.pack(*each) for each in self.deferred.items()]
        for (short, number), identity in self._identities.items():
            parts.append(_MESSAGE.pack(short, number, identity))
        return b"".join(parts)

    @classmethod
    def decode(cls, raw: bytes) -> ImportedMessages:
        """Read the bytes of `encode`.

        Raises:
            MalformedEntry: they are none.
        """
        found = cls()
        if not raw:
            return found
        try:
            (count,) = _COUNT.unpack_from(raw)
            at = _COUNT.size
            for _ in range(count):
                short, deferred = _DEFERRED.unpack_from(raw, at)
                found.deferred[short] = deferred
                at += _DEFERRED.size
            for short, number, identity in _MESSAGE.iter_unpack(raw[at:]):
                found._identities[short, number] = identity
        except struct.error as error:
            raise MalformedEntry(str(error)) from error
        return found
