"""The settled numbers of a queue: a digest of the message for each number, in pages.

Numbers are dense, so a page of `PAGE_NUMBERS` digests takes little more than the digests. All
queues of a process share one bound: the page with the oldest last addition is forgotten first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

DIGEST_BYTES = 16

PAGE_BITS = 8
PAGE_NUMBERS = 1 << PAGE_BITS
_PLACE = PAGE_NUMBERS - 1

PAGE_BYTES = PAGE_NUMBERS * DIGEST_BYTES + 250
"""The size of a page, with Python's overhead."""

MEMORY_BYTES_MAX = 64 << 20
"""The bound of all queues' pages."""

_UNSETTLED = bytes(DIGEST_BYTES)


class SettledMemory:
    """The pages of all queues of a process.

    Args:
        limit_bytes: the bound of the pages' size.

    Attributes:
        pages: by queue and page number; the page of the latest addition is last.
    """

    def __init__(self, limit_bytes: int = MEMORY_BYTES_MAX) -> None:
        self.pages: OrderedDict[tuple[int, int], bytearray] = OrderedDict()
        self._pages_max = max(limit_bytes // PAGE_BYTES, 1)
        self._queues = 0

    def __repr__(self) -> str:
        return f"SettledMemory({self.used_bytes} bytes)"

    @property
    def used_bytes(self) -> int:
        """The size of all pages."""
        return len(self.pages) * PAGE_BYTES

    def numbers(self) -> SettledNumbers:
        """Return the memory for one more queue."""
        self._queues += 1
        return SettledNumbers(self, self._queues)

    def make(self, key: tuple[int, int]) -> bytearray:
        """Return a new page; above the bound the oldest page is forgotten."""
        page = self.pages[key] = bytearray(PAGE_NUMBERS * DIGEST_BYTES)
        if len(self.pages) > self._pages_max:
            self.pages.popitem(last=False)
        return page


class SettledNumbers:
    """The settled numbers of one queue, made by `SettledMemory.numbers`."""

    def __init__(self, memory: SettledMemory, queue: int) -> None:
        self._memory = memory
        self._pages = memory.pages
        self._queue = queue

    def add(self, number: int, digest: bytes) -> None:
        """Add the number of a settled message, with the digest of its identity."""
        key = self._queue, number >> PAGE_BITS
        page = self._pages.get(key)
        if page is None:
            page = self._memory.make(key)
        else:
            self._pages.move_to_end(key)
        at = (number & _PLACE) * DIGEST_BYTES
        page[at : at + DIGEST_BYTES] = digest

    def digest_of(self, number: int) -> bytes | None:
        """Return the digest of the message that was settled under this number, if known."""
        page = self._pages.get((self._queue, number >> PAGE_BITS))
        if page is None:
            return None
        at = (number & _PLACE) * DIGEST_BYTES
        found = bytes(page[at : at + DIGEST_BYTES])
        return None if found == _UNSETTLED else found

    def numbers(self) -> Iterator[int]:
        """Yield all numbers known to be settled, page by page."""
        for (queue, key), page in list(self._pages.items()):
            if queue == self._queue:
                for place in range(PAGE_NUMBERS):
                    at = place * DIGEST_BYTES
                    if page[at : at + DIGEST_BYTES] != _UNSETTLED:
                        yield (key << PAGE_BITS) + place

    def forget(self) -> None:
        """Forget all numbers of this queue."""
        for key in [key for key in self._pages if key[0] == self._queue]:
            del self._pages[key]
