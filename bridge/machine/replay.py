"""Replay: the journal's tail in, what the last sequencer knew out.

**Theory.** A snapshot in the journal holds all that a sequencer knew; the entries behind it hold
all that came after. So the tail from the newest complete snapshot on suffices, and `span` entries
more: they may belong to arrivals that were not acked when the snapshot was written, and that come
again.

Trust: an entry can be trusted when it was written in the same boot of the broker that runs now, and
some time before its writer's channel ended. A quorum queue hears of a channel's end before it has
taken all that was published there, and drops the rest, which the journal has (3.10.8, under load:
an operator closed the connection of one bridge, and another came into office at once). What waits
for its time has no time of writing in the journal; it is never trusted, since a second copy in a
bucket is dropped there. The
boot of an entry is that of the marker or snapshot before it; entries before the first of these in
the range belong to the snapshot's life, unless a marker comes first: then their boot is unknown.

After a broker failure a sequencer publishes again what was not confirmed, so numbers may stand in
the journal twice, the second time behind higher ones: counters only rise.
"""

from __future__ import annotations

from bridge.machine.pending import Pending, identity_hash
from bridge.machine.sequencer import Known, Memory, blank
from bridge.machine.wheel import Place, Wheel
from bridge.model import number as numbering
from bridge.wire import headers, journal
from bridge.wire.basic import Properties, Table
from bridge.wire.journal import BucketState
from bridge.wire.stamp import NO_IDENTITY, read_waiting


class Replay:
    """Reads journal entries in order, oldest first.

    Attributes:
        lives: who wrote the markers and snapshots in the range, in order, without this life.
        addresses: the channels by which the newest snapshot and the markers behind it were
            published, without this life's. Whoever wrote a snapshot had waited for all others.
        entries: how many were read.
    """

    def __init__(
        self, *, is_partitioned: bool, life: bytes, fingerprint: str, sure_ms: int
    ) -> None:
        """Begin.

        Args:
            is_partitioned: whether the entity is.
            life: the life that reads; its own marker is the range's last entry.
            fingerprint: the boot of the broker that runs now.
            sure_ms: what was enqueued later may have been dropped by its queue (UTC ms).
        """
        self.lives: list[bytes] = []
        self.addresses: set[str] = set()
        self.entries = 0
        self._life = life
        self._is_partitioned = is_partitioned
        self._fingerprint = fingerprint
        self._sure_ms = sure_ms
        self._memory = blank(is_partitioned=is_partitioned)
        self._boot: str | None = None
        self._before_boot: list[tuple[bytes | int, Known]] = []
        self._parts = journal.SnapshotParts()
        self._gone: set[int] = set()
        self._needed: int | None = None

    def is_sufficient(self) -> bool:
        """Whether what was read goes back far enough, though not to the journal's beginning."""
        return self._needed is not None and self._needed <= 0

    def feed(self, basic: Properties, body: bytes) -> None:
        """Take one entry.

        Raises:
            ValueError: the entry is of a kind that the bridge writes, and cannot be read.
        """
        table = basic.headers or {}
        kind = table.get(headers.ENTRY, ("V", None))[1]
        if headers.WAITING in table:
            self._scheduled(basic)
        elif kind is None:
            self._numbered(table)
        elif kind == journal.CANCEL.encode():
            self._cancelled(table, body)
        elif kind == journal.BUCKET.encode():
            self._bucket(body)
        elif kind == journal.MARKER.encode():
            marker = journal.Marker.decode(body)
            if marker.life != self._life and basic.reply_to is not None:
                self.addresses.add(basic.reply_to)
            if marker.fingerprint == journal.REFUSED:
                self._distrust()
            else:
                self._begin(marker.life, marker.fingerprint, has_written_before=False)
        elif kind == journal.SNAPSHOT.encode():
            snapshot = self._parts.add(body)
            if snapshot is not None:
                self.addresses = {basic.reply_to} if basic.reply_to is not None else set()
                self._restore(snapshot)
        self.entries += 1

    def result(self) -> Memory:
        """Return what was learnt."""
        self._memory.entries = self.entries
        return self._memory

    def _begin(self, life: bytes, fingerprint: str, *, has_written_before: bool) -> None:
        if self._boot is None and has_written_before:
            for key, known in self._before_boot:
                is_trusted = self._is_trusted(known.enqueued_ms, fingerprint)
                self._remember(key, known._replace(is_trusted=is_trusted))
        self._before_boot = []
        self._boot = fingerprint
        if life != self._life:
            self.lives.append(life)

    def _distrust(self) -> None:
        memory = self._memory
        memory.known = {
            key: known._replace(is_trusted=False) for key, known in memory.known.items()
        }
        memory.activated = {
            key: known._replace(is_trusted=False) for key, known in memory.activated.items()
        }
        self._before_boot = []

    def _restore(self, snapshot: journal.Snapshot) -> None:
        self._begin(snapshot.life, snapshot.fingerprint, has_written_before=True)
        memory = self._memory
        memory.counters = list(snapshot.counters)
        memory.enqueued_ms = snapshot.enqueued_ms
        memory.average_bytes = snapshot.average_bytes
        memory.pending = Pending.decode(snapshot.pending, is_partitioned=self._is_partitioned)
        memory.wheel = Wheel()
        for level, slot, is_safe in snapshot.buckets:
            young_in = None if is_safe else snapshot.fingerprint
            memory.wheel.add(Place(level, slot), young_in=young_in)
        self._needed = snapshot.span - (self.entries - self._parts.count + 1)

    def _numbered(self, table: Table) -> None:
        number = table.get(headers.SEQUENCE_NUMBER, ("V", None))[1]
        enqueued_ms = table.get(headers.ENQUEUED_TIME, ("V", None))[1]
        if not isinstance(number, int) or not isinstance(enqueued_ms, int):
            return
        self._count(number)
        self._memory.enqueued_ms = max(self._memory.enqueued_ms, enqueued_ms)
        known = Known(number, enqueued_ms, self._is_trusted(enqueued_ms, self._boot))
        identity = table.get(headers.IDENTITY, ("V", None))[1]
        waited_as = table.get(headers.SCHEDULED_NUMBER, ("V", None))[1]
        if isinstance(waited_as, int):
            self._gone.add(waited_as)
            self._memory.pending.remove(waited_as)
            self._learn(waited_as, known)
        elif isinstance(identity, bytes) and identity != NO_IDENTITY:
            self._learn(identity, known)

    def _scheduled(self, basic: Properties) -> None:
        number, due_ms, _, identity = read_waiting(basic)
        self._count(number)
        if number not in self._gone:
            self._memory.pending.add(number, due_ms, identity_hash(identity))
        if identity != NO_IDENTITY:
            self._learn(identity, Known(number, None, is_trusted=False))

    def _cancelled(self, table: Table, body: bytes) -> None:
        for number in journal.decode_cancel(body):
            self._gone.add(number)
            self._memory.pending.remove(number)
        identity = table.get(headers.IDENTITY, ("V", None))[1]
        if isinstance(identity, bytes):
            self._memory.cancelled.add(identity[:-4])

    def _bucket(self, body: bytes) -> None:
        level, slot, state = journal.decode_bucket(body)
        if state is BucketState.GONE:
            self._memory.wheel.remove(Place(level, slot))
        else:
            young_in = (self._boot or "") if state is BucketState.YOUNG else None
            self._memory.wheel.add(Place(level, slot), young_in=young_in)

    def _count(self, number: int) -> None:
        partition = numbering.partition_of(number) if self._is_partitioned else 0
        counters = self._memory.counters
        if numbering.is_after(number, counters[partition], is_partitioned=self._is_partitioned):
            counters[partition] = number

    def _is_trusted(self, enqueued_ms: int | None, boot: str | None) -> bool:
        is_sure = enqueued_ms is not None and enqueued_ms <= self._sure_ms
        return is_sure and boot == self._fingerprint

    def _learn(self, key: bytes | int, known: Known) -> None:
        if self._boot is None:
            self._before_boot.append((key, known))
        self._remember(key, known)

    def _remember(self, key: bytes | int, known: Known) -> None:
        if isinstance(key, int):
            self._memory.activated[key] = known
        else:
            self._memory.known[key] = known
