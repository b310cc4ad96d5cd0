"""Forwards the messages of one queue of RabbitMQ, in order, for as long as it is told to.

    take -> waiting -> in flight (published to the target) -> confirmed -> acked
                |
                +-- cannot be forwarded: a dead letter of the source; a dead letter waits or is kept

Nothing is given back when a publish fails: it is published again, with the same identity, before
anything behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

from bridge.broker.errors import AckLost, BrokerError
from bridge.broker.handover import Publish
from bridge.engine import texts
from bridge.engine.forwarding.passing import CannotForward, Source, envelope_of, refused
from bridge.engine.ownership.services import Services
from bridge.engine.receiving.receivers import Receiving
from bridge.engine.sending.requests import Sending
from bridge.engine.settlement.held_message import HeldMessage
from bridge.machine.deduplicator import Left
from bridge.model import entity as model
from bridge.model.errors import EntityNotFound, ServiceBusError
from bridge.model.forwarding import target_of
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import names
from bridge.wire.envelope import SILENT_PROPERTIES

ASKED = 64
HELD = 128
"""So many messages are asked for at a time, and held when more are asked for; together fewer than a
target knows when they come again (`machine.forwarded`)."""

HELD_BYTES = 32 << 20
"""Of large messages fewer are held."""

KEPT_MAX = 1_000
"""So many dead letters that cannot be forwarded are kept, and those behind them still are."""

RETRY_S = 0.5
CLOSE_S = 2.0

_Entry = tuple[int, HeldMessage]
"""A message, and which of all that were taken it is."""

FindTarget = Callable[[str, bool], Awaitable[model.Entity | None]]
"""Returns an entity, or `None`; if True is given, as RabbitMQ has it now."""

log = logging.getLogger(__name__)


class Forwarder:
    """Forwards one entity's messages, or its dead letters.

    Args:
        find: finds the target.

    Attributes:
        entity: the source's definition; may be replaced at any time.
    """

    def __init__(
        self,
        path: EntityPath,
        entity: model.ReceiveEntity,
        *,
        services: Services,
        receiving: Receiving,
        sending: Sending,
        find: FindTarget,
    ) -> None:
        self.entity = entity
        self._path = path
        self._is_dead_letter = path.sub_queue is SubQueue.DEAD_LETTER
        self._sending = sending
        self._sender = services.sender
        self._departure = services.departure
        self._counters = services.counters
        self._find = find
        self._waiting: deque[_Entry] = deque()
        self._failed: list[_Entry] = []
        self._kept: list[HeldMessage] = []
        self._in_flight = 0
        self._last = 0
        self._asked = 0
        self._average_bytes = 1024
        self._changed = asyncio.Event()
        self._is_closing = False
        self._is_doubtful = False
        self._is_stuck = False
        self._receiver = receiving.open_uncounted(path, entity, self._take)
        self._reader = self._receiver.reader
        self._task = asyncio.create_task(self._run(), name=f"forwarder {path}")
        self._ask()

    def __repr__(self) -> str:
        held = f"{len(self._waiting)} waiting, {self._in_flight} in flight, {len(self._kept)} kept"
        return f"Forwarder({self._path}, {held})"

    async def close(self) -> None:
        """Ask for nothing more, and forward what is here; what cannot be goes back."""
        self._is_closing = True
        with contextlib.suppress(TimeoutError, BrokerError):
            async with asyncio.timeout(CLOSE_S):
                await self._receiver.drain()
                self._changed.set()
                await self._task
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        closed = self._receiver.close()
        left = [holding for _, holding in (*self._failed, *self._waiting)]
        for holding in sorted(left + self._kept, key=lambda each: each.number):
            if self._reader.holds(holding):
                self._reader.put_down(holding)
        with contextlib.suppress(TimeoutError, BrokerError):
            async with asyncio.timeout(CLOSE_S):
                await closed

    def _take(self, holding: HeldMessage) -> None:
        self._asked = max(self._asked - 1, 0)
        self._last += 1
        self._average_bytes += (len(holding.record.body) - self._average_bytes) // 8
        self._waiting.append((self._last, holding))
        self._changed.set()
        self._ask()

    def _ask(self) -> None:
        """Have something asked for as long as there is room: then RabbitMQ sends on by itself."""
        if self._is_closing or len(self._kept) >= KEPT_MAX or 2 * self._asked > ASKED:
            return
        held = len(self._waiting) + len(self._failed) + self._in_flight
        if held <= min(HELD, HELD_BYTES // max(self._average_bytes, 1)):
            count, self._asked = ASKED - self._asked, ASKED
            self._receiver.add_credit(count)

    async def _run(self) -> None:
        """Forward until closed, and nothing is here any more."""
        while not self._is_over:
            if self._failed:
                await self._put_failed_back()
            elif self._waiting:
                await self._pass_on_first()
            else:
                self._changed.clear()
                await self._changed.wait()

    @property
    def _is_over(self) -> bool:
        """Whether it is closed, and nothing is here that goes on now."""
        is_done = self._is_stuck or not (self._waiting or self._failed)
        return self._is_closing and is_done and not self._in_flight

    async def _put_failed_back(self) -> None:
        """Have what was not confirmed published again first, in order."""
        while self._in_flight:
            self._changed.clear()
            await self._changed.wait()
        again = sorted(self._failed, key=lambda each: each[0])
        self._failed.clear()
        self._waiting.extendleft(reversed(again))
        self._is_doubtful = True
        await self._wait()

    async def _wait(self) -> None:
        """Wait before something is tried again."""
        self._is_stuck = True
        await asyncio.sleep(RETRY_S)

    async def _pass_on_first(self) -> None:
        """Forward the first of those that wait; when it must wait on, it is still the first."""
        entry = self._waiting[0]
        _, holding = entry
        if not self._reader.holds(holding):
            self._waiting.popleft()  # RabbitMQ has taken it back
            self._ask()
            return
        try:
            publish = await self._publish_of(holding)
        except CannotForward as reason:
            if self._is_dead_letter and not reason.is_for_good:
                await self._wait()
                return
            self._waiting.popleft()
            self._strand(holding, reason)
        except (BrokerError, ServiceBusError) as error:
            log.info("forward.waits entity=%s error=%s", self._path, error)
            await self._wait()
        else:
            if not self._failed:  # or those come first
                self._waiting.popleft()
                self._is_stuck = False
                self._hand_over(entry, publish)

    async def _publish_of(self, holding: HeldMessage) -> Publish:
        name = target_of(self.entity, self._path.sub_queue)
        if not name:
            raise refused(EntityNotFound(texts.not_found("")))
        target = await self._target(name)
        if not isinstance(target, model.Queue | model.Topic):
            raise refused(EntityNotFound(texts.not_found(name)))
        try:
            self._sending.check_open(target)
        except ServiceBusError as error:
            raise refused(error) from error
        source = Source(self.entity, self._is_dead_letter)
        body = envelope_of(holding, source, target, self._sending.tier)
        return Publish(names.front(target.path), "", SILENT_PROPERTIES, body)

    async def _target(self, name: str) -> model.Entity | None:
        target = await self._find(name, self._is_doubtful)
        if target is None and not self._is_doubtful:
            target = await self._find(name, True)
        self._is_doubtful = False
        return target

    def _hand_over(self, entry: _Entry, publish: Publish) -> None:
        _, holding = entry
        self._reader.departing(holding)
        self._in_flight += 1
        acks = ((holding.channel, holding.tag),)
        done = partial(self._done, entry)
        try:
            self._sender.hand_over((publish,), acks=acks, done=done, failpoint="engine.forward")
        except (BrokerError, ServiceBusError) as error:
            done(error)

    def _done(self, entry: _Entry, error: BrokerError | ServiceBusError | None) -> None:
        _, holding = entry
        self._in_flight -= 1
        self._changed.set()
        if error is None:
            self._counters.forwarded += 1
            self._reader.left(holding, Left.SETTLED)
        elif self._reader.holds(holding) and not isinstance(error, AckLost):
            log.info("forward.failed entity=%s error=%s", self._path, error)
            self._reader.stayed(holding)
            self._failed.append(entry)
        self._ask()

    def _strand(self, holding: HeldMessage, reason: CannotForward) -> None:
        """Make a message a dead letter; one that is a dead letter already is kept here."""
        log.warning("forward.refused entity=%s reason=%s", self._path, reason)
        if self._is_dead_letter:
            self._kept = [each for each in self._kept if self._reader.holds(each)]
            self._kept.append(holding)
        else:
            self._counters.unforwardable += 1
            self._reader.departing(holding)
            self._departure.strand(self._reader, holding, reason.reason, reason.description)
        self._ask()
