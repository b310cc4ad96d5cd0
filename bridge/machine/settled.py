"""Which numbers of a queue are settled, and of which message each: a digest a number, in pages.

Numbers are dense, so a page of `PAGE_NUMBERS` digests takes little more than these. Bounded are the
numbers of one queue, and the bytes of all queues of a process. What was settled longest ago is
forgotten first, a page at a time; of several queues the one that has most gives way.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

DIGEST_BYTES = 16

PAGE_BITS = 8
PAGE_NUMBERS = 1 << PAGE_BITS
_PLACE = PAGE_NUMBERS - 1

PAGE_BYTES = PAGE_NUMBERS * DIGEST_BYTES + 250
"""With what Python needs for it."""

NUMBERS_MAX = 1_000_000
"""So many of a queue are remembered."""

MEMORY_BYTES_MAX = 64 << 20
"""So much is remembered of all queues."""

_UNSETTLED = bytes(DIGEST_BYTES)


class SettledMemory:
    """The room that the queues of a process share.

    Args:
        limit_bytes: how much they may take.
    """

    def __init__(self, limit_bytes: int = MEMORY_BYTES_MAX) -> None:
        self._limit_pages = max(limit_bytes // PAGE_BYTES, 1)
        self._members: list[SettledNumbers] = []
        self._pages = 0

    def __repr__(self) -> str:
        return f"SettledMemory({len(self._members)} queues, {self.used_bytes} bytes)"

    @property
    def used_bytes(self) -> int:
        """How much they take."""
        return self._pages * PAGE_BYTES

    def numbers(self, numbers_max: int = NUMBERS_MAX) -> SettledNumbers:
        """Return one more queue's part."""
        member = SettledNumbers(self, numbers_max)
        self._members.append(member)
        return member

    def remove(self, member: SettledNumbers) -> None:
        """A queue has a part no more."""
        if member in self._members:
            self._members.remove(member)

    def grow(self) -> None:
        """A page is made: have another one forgotten, if there are too many."""
        self._pages += 1
        if self._pages > self._limit_pages:
            max(self._members, key=len).forget_oldest()

    def shrink(self, pages: int) -> None:
        """So many pages are gone."""
        self._pages -= pages


class SettledNumbers:
    """The numbers of one queue; `SettledMemory.numbers` makes one."""

    def __init__(self, memory: SettledMemory, numbers_max: int) -> None:
        self._memory = memory
        self._pages_max = max(numbers_max // PAGE_NUMBERS, 1)
        self._pages: OrderedDict[int, bytearray] = OrderedDict()

    def __len__(self) -> int:
        """Return how many pages there are."""
        return len(self._pages)

    def add(self, number: int, digest: bytes) -> None:
        """The message with this number, and this digest of its identity, is settled."""
        key = number >> PAGE_BITS
        page = self._pages.get(key)
        if page is None:
            page = self._pages[key] = bytearray(PAGE_NUMBERS * DIGEST_BYTES)
            if len(self._pages) > self._pages_max:
                self.forget_oldest()
            self._memory.grow()
        else:
            self._pages.move_to_end(key)
        at = (number & _PLACE) * DIGEST_BYTES
        page[at : at + DIGEST_BYTES] = digest

    def digest_of(self, number: int) -> bytes | None:
        """Return the digest of the message that was settled under this number, if one is known."""
        page = self._pages.get(number >> PAGE_BITS)
        if page is None:
            return None
        at = (number & _PLACE) * DIGEST_BYTES
        found = bytes(page[at : at + DIGEST_BYTES])
        return None if found == _UNSETTLED else found

    def numbers(self) -> Iterator[int]:
        """Yield all that are known to be settled, page by page."""
        for key, page in list(self._pages.items()):
            for place in range(PAGE_NUMBERS):
                at = place * DIGEST_BYTES
                if page[at : at + DIGEST_BYTES] != _UNSETTLED:
                    yield (key << PAGE_BITS) + place

    def forget_oldest(self) -> None:
        """Forget the page that nothing was added to for longest."""
        self._pages.popitem(last=False)
        self._memory.shrink(1)

    def forget(self) -> None:
        """Forget all."""
        self._memory.shrink(len(self._pages))
        self._pages.clear()

    def leave(self) -> None:
        """Forget all, and take no more of the room that is shared."""
        self.forget()
        self._memory.remove(self)
        self._memory = SettledMemory()  # for the few that are settled later
