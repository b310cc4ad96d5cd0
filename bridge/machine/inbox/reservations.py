"""Numbers that transactions reserve, and the messages that their commits schedule under these.

    reserve     the leader passes over a number for each message: an entry of the journal, a gap as
                any (`wire.gaps`). It is answered when that is confirmed
    commit      each message goes to the bucket of its time, as any that is scheduled, under the
                number that was reserved for it
    no commit   nothing: the numbers are a gap already

A message that is due when it is committed waits in the journal alone, and becomes active at once.
It gets its new number then, as any scheduled one, so active messages have numbers that rise.

What is reserved is known by nobody but the gateway that asked. A reservation that comes again, as
its leader was killed, passes over further numbers; whoever asked hears one of the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bridge.machine.inbox.applied import Applied, Unplaced
from bridge.machine.inbox.pending import identity_hash
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.publications import Publications, waiting_of
from bridge.machine.inbox.sequencer_memory import Memory
from bridge.machine.inbox.wheel import place
from bridge.model import number as numbering
from bridge.wire import stamp
from bridge.wire.envelope import Item, item_identity
from bridge.wire.gaps import Gap
from bridge.wire.reservations import ReservedSchedules

NOT_RESERVED = "The SequenceNumber {number} was not reserved here: the entity was made anew."
TAKEN = "A message is scheduled under SequenceNumber = {number} already."


def gaps_for(
    memory: Memory, identity: bytes, keys: Sequence[bytes | None], *, is_partitioned: bool
) -> tuple[list[int], list[Gap]]:
    """Return a number for each key, and the gaps that they make.

    Args:
        identity: the reservation's; it spreads messages without a key over the partitions.

    Raises:
        ValueError: the numbers of a partition roll over.
    """
    firsts: dict[int, int] = {}
    lasts: dict[int, int] = {}
    found: list[int] = []
    for at, key in enumerate(keys, identity[0]):
        partition = 0
        if is_partitioned and key is not None:
            partition = numbering.partition_for_key(key)
        elif is_partitioned:
            partition = at % numbering.PARTITION_COUNT
        last = lasts.get(partition, memory.counters[partition])
        number = numbering.successor(last, is_partitioned=is_partitioned)
        if number != last + 1:
            raise ValueError(f"the numbers roll over behind {last}")
        firsts.setdefault(partition, number)
        lasts[partition] = number
        found.append(number)
    return found, [Gap(first, lasts[partition]) for partition, first in firsts.items()]


class Reservations:
    """Schedules messages under numbers that were reserved.

    Args:
        activated_again: publishes again what an earlier term has made active.
    """

    def __init__(
        self,
        memory: Memory,
        publications: Publications,
        activated_again: Callable[[stamp.Waiting, bytes], Sequence[Publication]],
    ) -> None:
        self._memory = memory
        self._publications = publications
        self._activated_again = activated_again
        self._added: list[int] = []
        self._accepted: list[tuple[bytes, int]] = []

    def refusal_of(self, schedules: ReservedSchedules) -> str:
        """Return why numbers cannot be those of messages; "" if they can."""
        memory, numbers = self._memory, self._publications.numbers
        for number in schedules.numbers:
            partition = numbers.partition_of(number)
            if partition is None or not 0 < number <= memory.counters[partition]:
                return NOT_RESERVED.format(number=number)
            if number in memory.pending:
                return TAKEN.format(number=number)
        return ""

    def schedule(
        self, identity: bytes, first: int, schedules: ReservedSchedules, now_ms: int
    ) -> Applied:
        """Return the publications of messages that a commit schedules.

        It is followed by `keep`, when the commit is decided, or by `take_back`.

        Args:
            identity: the transaction's id.
            first: the place of the first message in the transaction, which its identity has.
        """
        publications: list[Publication] = []
        unplaced: list[Unplaced] = []
        pending = self._memory.pending
        for index, (item, reserved) in enumerate(zip(*schedules, strict=True), first):
            own = item_identity(identity, index)
            known = self._memory.known.get(own)
            number = reserved
            if known is not None:
                waiting = waiting_of(item, own, known.number)
                if known.is_trusted:
                    continue
                if not pending.matches(known.number, identity_hash(own)):
                    publications += self._activated_again(waiting, item.body)
                    continue
                number = known.number
            elif self._is_accepted(item, number, now_ms):
                continue
            else:
                assert item.scheduled_ms is not None
                pending.add(number, item.scheduled_ms, identity_hash(own))
                self._added.append(number)
            publications.append(self._placed(item, own, number, now_ms, unplaced))
        return Applied(publications, unplaced=unplaced)

    def _is_accepted(self, item: Item, number: int, now_ms: int) -> bool:
        """Whether a message of this id was accepted before; else this one is."""
        digest = self._publications.digest(item)
        if digest is None:
            return False
        if self._memory.history.find(digest, now_ms) is not None or any(
            digest == each for each, _ in self._accepted
        ):
            return True
        self._accepted.append((digest, number))
        return False

    def _placed(
        self, item: Item, identity: bytes, number: int, now_ms: int, unplaced: list[Unplaced]
    ) -> Publication:
        """Return the publication of a message into its bucket, or into the journal alone."""
        assert item.scheduled_ms is not None
        made, mark = self._publications, stamp.RESERVED
        if item.scheduled_ms > now_ms:
            where = place(item.scheduled_ms, now_ms)
            if self._memory.wheel.is_usable(where):
                return made.scheduled(item, identity, number, now_ms, where, mark)
        unplaced.append(Unplaced(waiting_of(item, identity, number), item.body))
        return made.unplaced(item, identity, number, now_ms, mark)

    def keep(self, now_ms: int) -> None:
        """Note that what was scheduled is decided."""
        for digest, number in self._accepted:
            self._memory.history.accept(digest, number, now_ms)
        self._accepted.clear()
        self._added.clear()

    def take_back(self) -> None:
        """Undo what was scheduled since `keep`: it is not decided."""
        for number in self._added:
            self._memory.pending.remove(number)
        self._accepted.clear()
        self._added.clear()
