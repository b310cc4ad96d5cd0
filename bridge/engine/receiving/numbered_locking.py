"""Locks messages by their numbers, wherever they stand in their queue, or says which there are.

RabbitMQ gives a queue's first message only. So what stands before a wanted one is held, without its
content, until the search is over; then it goes back, uncounted and in order, and only the wanted
ones stay locked. Meanwhile other receivers get what stands behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final
from weakref import WeakValueDictionary

from bridge.engine.api import Received
from bridge.engine.numbered_locks import NumberedLocks
from bridge.engine.receiving.queue_reader import QueueReader
from bridge.engine.receiving.receiver import QueueReceiver
from bridge.engine.receiving.receivers import Receiving
from bridge.engine.services import Services
from bridge.engine.settlement.held_message import HeldMessage
from bridge.machine.browse.counted_dead_letters import LookedThrough
from bridge.machine.queue.numbered_search import NumberedSearch
from bridge.model import entity as model
from bridge.model.name import EntityPath, SubQueue
from bridge.wire.basic import Properties
from bridge.wire.record import Record

DEAD_LETTERS_MAX: Final = 10_000
"""How many dead letters are held that stand before wanted ones. No delivery of one is counted.

All of a search come by one window (`WINDOW_SIZE_MAX`), so that they go back in their order.
"""

PASSED_MAX: Final = 1_000
"""How many other messages are held so: RabbitMQ counts a failed delivery of what a bridge holds
that is killed."""

BYTES_MAX: Final = 16 << 20
"""The size of the messages that one request locks; one more may come when it is nearly reached."""

LASTS_S: Final = 20.0
"""The time after which the rest counts as not reached: clients wait for a minute."""

_NO_CONTENT: Final = Record(Properties(), b"")

Peek = Callable[[EntityPath, int, int], Awaitable[list[Received]]]
"""Returns messages from a number on, up to a count."""


class NumberedLocking:
    """Locks messages of the queues that this process receives from.

    Args:
        peek: looks whether a message is there that no receiver got.
        may_have: whether a message may be there that this peek does not show.
        check: raises an error if the entity does not allow receives now.
    """

    def __init__(
        self,
        services: Services,
        receiving: Receiving,
        peek: Peek,
        may_have: Callable[[EntityPath, int], bool],
        check: Callable[[EntityPath], object],
    ) -> None:
        self._locks = services.locks
        self._counters = services.counters
        self._receiving = receiving
        self._peek = peek
        self._may_have = may_have
        self._check = check
        self._turns: WeakValueDictionary[tuple[str, SubQueue], asyncio.Lock] = WeakValueDictionary()

    async def lock(
        self, path: EntityPath, queue: model.ReceiveEntity, numbers: Sequence[int]
    ) -> NumberedLocks:
        """Lock messages; see `api.NamespaceVerbs.lock_messages`. One search a queue at a time."""
        async with self._turn(path):
            return await self._lock(path, queue, list(dict.fromkeys(numbers)))

    async def look(self, path: EntityPath, queue: model.ReceiveEntity) -> LookedThrough | None:
        """Look through dead letters; `None`: a search is under way there."""
        turn = self._turn(path)
        if turn.locked():  # a search may be waiting for the peek that asks for this
            return None
        async with turn:
            search: NumberedSearch[HeldMessage] = NumberedSearch(
                None, passed_max=DEAD_LETTERS_MAX, bytes_max=BYTES_MAX, holds=_is_held
            )

            def take(holding: HeldMessage) -> None:
                search.take(holding, 0)
                holding.record = _NO_CONTENT

            held = self._receiving.held_numbers(path)
            is_whole = await _search(self._receiving.open_uncounted(path, queue, take), search)
            held += self._receiving.held_numbers(path)
            return LookedThrough([each.number for each in search.passed], frozenset(held), is_whole)

    async def show(
        self, path: EntityPath, queue: model.ReceiveEntity, see: Callable[[Received], None]
    ) -> None:
        """Call `see` with each message that nobody holds, in the order of the queue.

        All are taken out for that, and go back uncounted: receivers may lock them then.
        """
        async with self._turn(path):
            search: NumberedSearch[HeldMessage] = NumberedSearch(
                None, passed_max=DEAD_LETTERS_MAX, bytes_max=BYTES_MAX, holds=_is_held
            )

            def take(holding: HeldMessage) -> None:
                search.take(holding, 0)
                see(holding.received())
                holding.record = _NO_CONTENT

            await _search(self._receiving.open_uncounted(path, queue, take), search)

    def _turn(self, path: EntityPath) -> asyncio.Lock:
        return self._turns.setdefault((path.key, path.sub_queue), asyncio.Lock())

    async def _lock(
        self, path: EntityPath, queue: model.ReceiveEntity, numbers: Sequence[int]
    ) -> NumberedLocks:
        is_dead = path.sub_queue is not SubQueue.NONE
        search: NumberedSearch[HeldMessage] = NumberedSearch(
            numbers,
            passed_max=DEAD_LETTERS_MAX if is_dead else PASSED_MAX,
            bytes_max=BYTES_MAX,
            holds=_is_held,
        )

        def take(holding: HeldMessage) -> None:
            if not search.take(holding, len(holding.record.body)):
                holding.record = _NO_CONTENT

        receiver = self._receiving.open_uncounted(path, queue, take)
        is_whole = await _search(receiver, search)
        reader, found = receiver.reader, search.found
        try:
            rest = [each for each in numbers if each not in found]
            shown = await self._shown(path, rest)
            there = [each for each in rest if each in shown or self._may_have(path, each)]
            self._check(path)  # it may be held, disabled or gone since
        except BaseException:
            _put_down(reader, found.values())
            raise
        received = [
            self._locked(reader, found[each]) for each in sorted(found) if reader.holds(found[each])
        ]
        self._counters.delivered += len(received)
        lost = [each for each in found if not reader.holds(found[each])]
        return NumberedLocks(
            received=received,
            unavailable=[*lost, *(there if is_whole else ())],
            unreached=[] if is_whole else there,
            missing=[each for each in rest if each not in there],
        )

    def _locked(self, reader: QueueReader, holding: HeldMessage) -> Received:
        token, until_ms = self._locks.acquire(reader, holding, reader.queue.lock_duration_ms)
        return holding.received(lock_token=token, locked_until_ms=until_ms)

    async def _shown(self, path: EntityPath, numbers: Sequence[int]) -> set[int]:
        """Return those of some numbers that peeks show."""
        shown: set[int] = set()
        left = sorted(numbers)
        while left:
            page = await self._peek(path, left[0], len(left))
            shown.update(each.sequence_number for each in page)
            last = max((each.sequence_number for each in page), default=left[-1])
            left = [each for each in left if each > last]
        return shown


def _is_held(holding: HeldMessage) -> bool:
    return not holding.channel.is_closed


async def _search(receiver: QueueReceiver, search: NumberedSearch[HeldMessage]) -> bool:
    """Receive until all are found, or no more come; give back the others.

    Returns:
        Whether no bound has ended it. When it fails, all are given back.
    """
    is_done = False
    try:
        is_whole = await _read(receiver, search)
        is_done = True
        return is_whole
    finally:
        closing = receiver.close()
        _put_down(receiver.reader, search.passed)
        if not is_done:
            _put_down(receiver.reader, search.found.values())
        await closing


async def _read(receiver: QueueReceiver, search: NumberedSearch[HeldMessage]) -> bool:
    """Receive to a bound or the queue's end, also when all are found.

    A window that is closed while messages are on its way to it brings them all the same, one by
    one.
    """
    try:
        async with asyncio.timeout(LASTS_S):
            while room := search.room:
                came = search.came
                receiver.add_credit(room)
                while not await receiver.reader.ready.bring(receiver.number):
                    pass  # RabbitMQ is slow: to end the window would take messages out of order
                await receiver.withdraw()
                search.prune()
                if search.came == came:
                    return True
    except TimeoutError:
        return False
    return not search.is_cut


def _put_down(reader: QueueReader, messages: Iterable[HeldMessage]) -> None:
    for each in messages:
        if reader.holds(each):
            reader.put_down(each)
