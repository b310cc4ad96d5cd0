"""The memory of a sequencer: the content of a snapshot, and the additions of the journal's tail."""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge.machine.inbox.accepted_ids import History
from bridge.machine.inbox.came import Came
from bridge.machine.inbox.decided import Decided
from bridge.machine.inbox.forwarded import Forwarded
from bridge.machine.inbox.imported_messages import ImportedMessages
from bridge.machine.inbox.known import Known
from bridge.machine.inbox.left_out import Missed
from bridge.machine.inbox.pending import Pending
from bridge.machine.inbox.relayed import RelayedCopies
from bridge.machine.inbox.wheel import Wheel
from bridge.machine.usage.idleness import Uses
from bridge.model import number as numbering
from bridge.wire.gaps import Gap
from bridge.wire.relay_source import SAID_BYTES


@dataclass(slots=True)
class Memory:
    """The memory of one entity's sequencer.

    Attributes:
        counters: the last number of each partition.
        enqueued_ms: the last enqueued time.
        pending: the scheduled messages.
        wheel: the buckets.
        average_bytes: the average size of a scheduled message.
        known: identity -> a message of an earlier term, whose arrival may come again.
        activated: number as scheduled -> the same message with its new number.
        cancelled: identities of cancels that earlier terms carried out.
        subscriptions: the last number of each subscription, by its short id; of a topic.
        uses: the last uses of temporary entities.
        history: the accepted messages, where duplicates are detected.
        left_out: the subscriptions whose queues take nothing, by their short ids.
        forwarded: the last messages forwarded to the entity.
        relayed: the messages that relays have copied to the entity, and that may come again.
        decided: what transactions have decided.
        skipped: how many numbers were passed over (`wire.gaps`), by short id; the entity's own by
            `gaps.OWN`.
        imported: the messages that were imported last, while the entity is held.
    """

    counters: list[int]
    enqueued_ms: int = 0
    pending: Pending = field(default_factory=Pending)
    wheel: Wheel = field(default_factory=Wheel)
    average_bytes: int = 1024
    known: dict[bytes, Known] = field(default_factory=dict)
    activated: dict[int, Known] = field(default_factory=dict)
    cancelled: set[bytes] = field(default_factory=set)
    subscriptions: dict[bytes, int] = field(default_factory=dict)
    uses: Uses = field(default_factory=Uses)
    history: History = field(default_factory=History)
    left_out: dict[bytes, Missed] = field(default_factory=dict)
    forwarded: Forwarded = field(default_factory=Forwarded)
    relayed: RelayedCopies = field(default_factory=RelayedCopies)
    decided: Decided = field(default_factory=Decided)
    skipped: dict[bytes, int] = field(default_factory=dict)
    imported: ImportedMessages = field(default_factory=ImportedMessages)

    @property
    def has_inherited(self) -> bool:
        """Whether arrivals of earlier terms may come again."""
        return bool(self.known or self.activated or self.cancelled)

    def skip(self, gap: Gap) -> None:
        """Count the numbers of a gap that no message has."""
        self.skipped[gap.short] = self.skipped.get(gap.short, 0) + gap.width

    def given(self) -> dict[bytes, int]:
        """Return how many numbers each subscription has given, by its short id."""
        skipped = self.skipped
        return {
            short: number - skipped.get(short, 0) for short, number in self.subscriptions.items()
        }

    def came(self, source: bytes, identity: bytes | None) -> Came:
        """Return what a forwarded or relayed message is to the entity, and remember it.

        Args:
            source: an item's (`wire.envelope`).
            identity: its envelope's.
        """
        if len(source) == SAID_BYTES:
            return self.relayed.came(source)
        assert identity is not None, "only envelopes have sources"
        if self.forwarded.has(source, identity):
            return Came.AGAIN
        self.forwarded.note(source, identity)
        return Came.FIRST


def blank(*, is_partitioned: bool) -> Memory:
    """Return the memory of an entity that has given no number yet."""
    partitions = range(numbering.PARTITION_COUNT if is_partitioned else 1)
    return Memory(
        counters=[numbering.compose(partition, 0) for partition in partitions],
        pending=Pending(is_partitioned=is_partitioned),
    )
