"""The owner of one shard of a session entity: one process, which holds all messages of the shard.

The bridge that owns the shard's queue `$sessions` (`ownership`) also consumes the shard's queue, as
the only bridge. It begins when its predecessor's consumers are gone. It gives no session until all
messages that were in the queue then have come, so the order within a session stays. When one of its
channels ends, it gives everything back: all its sessions are lost, and the next owner begins.

A shard that another bridge is to own is handed over in order only: no receiver holds a session, and
nothing that leaves the shard is unconfirmed. Until then its owner goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from bridge.background.retry import retry
from bridge.background.tasks import Tasks
from bridge.background.waits import RepeatedWait
from bridge.broker.connection.address import state_of
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.broker.errors import BrokerError, ConnectionLost, NotFound
from bridge.broker.queue_on_use import is_in_use, make_on_use
from bridge.engine import texts
from bridge.engine.ownership.ownership import Ask, Ownership
from bridge.engine.services import Services
from bridge.engine.sessions.messages import SessionMessages
from bridge.engine.sessions.pinned_states import PinnedStates
from bridge.engine.sessions.shard_arrivals import ShardArrivals
from bridge.engine.sessions.shard_channels import ShardChannels
from bridge.engine.sessions.stored_states import POINT, StoredStates
from bridge.engine.sessions.takeover import take_over
from bridge.model.errors import ServiceBusError
from bridge.topology import names
from bridge.topology.resources import Queue
from bridge.wire.basic import Table
from bridge.wire.reply import encode_found
from bridge.wire.sessions import STATE, WHERE

REOPEN_S = 0.5

SWEEP_S = 10.0
"""The time between two sweeps: they end expired messages that no receiver asks for."""

SWEPT_AT_ONCE = 500

REFRESHED_AT_ONCE = 500
REFRESH_S = 0.25
REFRESHES_MAX = 20
"""Old messages that are published again at once, the time between two such rounds, and the rounds a
sweep: 10,000 messages in 15 seconds. A session waits a moment for each of its messages."""

PAUSE_S = 2.0
"""How long a sweep waits for what is unconfirmed when the shard is to be handed over, and how long
until the next one then."""

LOOK_S = 0.05

HANDS_OVER = "another bridge is to own its sessions, once RabbitMQ has confirmed what leaves it"
TAKES_OVER = "its messages are being fetched, before its sessions can be accepted"

log = logging.getLogger(__name__)


class SessionOwner:
    """This process's part in owning a shard: as the owner, or standing by.

    Args:
        messages: the shard's messages, empty until this process is the owner.
        states: the shard's queue `$sessions`; the first use makes it.
        compacts_logs: whether RabbitMQ compacts a queue's log; else old messages are published
            again.
        consumes_once: see `ShardChannels`.
        on_ready: called whenever this process has become the owner and has all messages.
        first: called before this process stands by for the first time.
        elsewhere: makes the first bridge in the shard's order stand by; returns whether that is
            another bridge, which stands by now.

    Attributes:
        messages: the shard's messages.
        ownership: this process's consumer of the queue `$sessions`.
        stored: the states of the shard's sessions.
        pinned: those of its sessions to which transactions are to give a state.
        is_ready: whether this process is the owner and has all messages of the shard.
        natives: the count of the queue's consumers that are not this process's.
        arrivals: what RabbitMQ delivers of the shard.
    """

    def __init__(
        self,
        messages: SessionMessages,
        states: Queue,
        *,
        services: Services,
        compacts_logs: bool,
        consumes_once: bool,
        on_ready: Callable[[], None],
        first: Callable[[], Awaitable[None]],
        elsewhere: Callable[[], Awaitable[bool]],
    ) -> None:
        self._first: Callable[[], Awaitable[None]] | None = first
        self._elsewhere = elsewhere
        self._compacts_logs = compacts_logs
        self._consumes_once = consumes_once
        self.is_ready = False
        self.natives = 0
        self.messages = messages
        self._states = states
        self._has_stood_by = False
        self.ownership = Ownership(
            states.name,
            self,
            route=services.connections.route(messages.resource),
            sender=services.sender,
            asks=WHERE,
            point=POINT,
            prepare=self._make_states,
        )
        self.stored = StoredStates(self.ownership, services.sender)
        self.pinned = PinnedStates(messages, self.stored, services)
        self._services = services
        self.arrivals = ShardArrivals(messages, services)
        self._on_ready = on_ready
        self._tasks = Tasks()
        self._sweeping: asyncio.Task[None] | None = None
        self._handing_over = RepeatedWait(services.supervisor.waits, messages.resource)
        self._has_been_lost = False
        self._is_closed = False

    def __repr__(self) -> str:
        return f"SessionOwner({self.messages!r}, is_ready={self.is_ready})"

    async def stand_by(self) -> None:
        """Consume `$sessions`; the first time, bridges before this one in the order go first."""
        if self._first is not None:
            await self._first()
        await self.stand_by_now()

    async def stand_by_now(self) -> None:
        """Consume `$sessions` at once, as the owner or standing by; see `Ownership.stand_by`."""
        self._first = None
        if not self._is_closed:
            await self.ownership.stand_by()

    async def _make_states(self) -> None:
        """Make the queue `$sessions`, unless it is in use."""
        connections, queue = self._services.connections, self._states
        state = await state_of(connections, queue.name)
        if not is_in_use(state):
            async with connections.apart(queue.name) as lease:
                await make_on_use(lease, queue, names.dead_letter_exchange(str(self.messages.path)))
            if state is None and self._has_stood_by:
                self._services.on_made_again(queue)
        self._has_stood_by = True

    async def catch_up(self) -> None:
        """Wait for all messages that RabbitMQ has delivered so far; raises BrokerError."""
        if self.messages.windows is not None:
            await self.messages.windows.catch_up()
            await self.arrivals.asked.idle()

    async def end(self) -> None:
        """Close the channels after RabbitMQ has applied their acks; own nothing from now on."""
        self._is_closed = True
        self._stay()
        self._cancel()
        self.messages.stop()
        if self.messages.windows is not None:
            await self.messages.windows.closed()
        self._leave()

    def drop(self) -> None:
        """Give everything back at once, and own nothing from now on: the entity is gone."""
        self._is_closed = True
        self._let_go()
        self._leave()

    # Calls of the ownership (`ownership.Owned`).

    def became_owner(self) -> None:
        """Begin to consume the shard's queue: this process is its owner now."""
        self._tasks.start(self._begin(), "session takeover")

    def lost(self, channel: Channel, error: BrokerError) -> None:
        """Give all sessions back: this process's consumer of `$sessions` has ended."""
        self._on_lost(error)

    def arrived(self, delivery: Delivery, kind: object, table: Table) -> None:
        """Keep a state; refuse a message that is none."""
        if kind == STATE:
            self.stored.arrived(delivery, table)
        else:
            self.refuse(delivery, "")

    def reply_to(self, ask: Ask) -> bytes | None:
        """Return an answer with this process's name; `None` until it has all messages."""
        return encode_found(self._services.locks.instance) if self.is_ready else None

    def refuse(self, delivery: Delivery, error: str) -> None:
        """Make a message of `$sessions` that is no state a dead letter."""
        self.messages.refuse(delivery, texts.MISPLACED_STATE)

    # The course of an ownership.

    def _leave(self) -> None:
        self.ownership.leave()
        self.stored.lose()

    async def _begin(self) -> None:
        resource = self.messages.resource
        windows = ShardChannels(
            resource,
            self._services.connections.route(resource),
            consumes_once=self._consumes_once,
            on_delivery=self.arrivals.arrived,
            on_lost=self._on_lost,
        )
        self.messages.windows, self.arrivals.count = windows, 0
        try:
            with self._services.supervisor.waits.begin(resource, TAKES_OVER):
                await self._take_over(windows)
        except BrokerError as error:
            self._on_lost(error)
            return
        except ServiceBusError as error:
            self._on_lost(ConnectionLost(text=str(error)))
            return
        except Exception as error:
            self._on_lost(ConnectionLost(text=repr(error)))
            raise
        self.is_ready = True
        self.ownership.keep_token()
        self.ownership.serve()
        self._on_ready()
        self._sweeping = self._services.supervisor.keep(
            "session sweep",
            partial(self._look_after, windows),
            subject=resource,
            may_end=lambda: self.messages.windows is not windows or not self.is_ready,
        ).task
        log.info("session.owner messages=%r", self.messages)

    async def _take_over(self, windows: ShardChannels) -> None:
        self.natives = await take_over(
            self.messages.resource,
            windows,
            connections=self._services.connections,
            has_been_lost=self._has_been_lost,
            arrived=lambda: self.arrivals.count,
        )
        await self.ownership.catch_up()  # the states, too
        await self.arrivals.asked.idle()
        if self.messages.queue.transactional:
            await self.pinned.take_over()
        self.stored.strip_all()

    def _on_lost(self, error: BrokerError) -> None:
        """Give everything back, and stand by again: a channel or consumer has ended."""
        log.info("session.lost queue=%s error=%s", self.messages.resource, error)
        self._has_been_lost = True
        self._let_go()
        self._leave()
        if not self._is_closed:
            self._note_missing(error)
            self._tasks.start(self._return(), "session return")

    def _hand_over(self) -> None:
        """Leave the shard to another bridge: `_may_hand_over` in this turn of the event loop."""
        log.info("session.handed_over queue=%s", self.messages.resource)
        self._let_go()
        self._leave()
        self._tasks.start(self._return(), "session return")

    def _let_go(self) -> None:
        self.is_ready = False
        self._stay()
        self._cancel()
        self.arrivals.asked.lose()
        self.pinned.lose()
        self.messages.lose()

    def _cancel(self) -> None:
        """Cancel all tasks but the calling one."""
        self._tasks.cancel()
        if self._sweeping is not None and self._sweeping is not asyncio.current_task():
            self._sweeping.cancel()

    async def _return(self) -> None:
        """Stand by again after `REOPEN_S`, whatever hinders that."""
        await asyncio.sleep(REOPEN_S)
        await retry(
            self.stand_by, wait_s=REOPEN_S, retryable=Exception, on_failed=self._note_waiting
        )

    def _note_waiting(self, error: BaseException, failures: int, wait_s: float) -> None:
        log.info("session.waiting queue=%s error=%s", self.ownership.resource, error)
        self._note_missing(error)

    def _note_missing(self, error: BaseException) -> None:
        """Have the entity's queues made again when one was deleted by hand."""
        if isinstance(error, NotFound):
            self._services.on_missing(str(self.messages.path))

    async def _look_after(self, windows: ShardChannels) -> None:
        """Every `SWEEP_S`: end expired messages, refresh old ones, count native consumers.

        Sooner while the shard is to be handed over.
        Gives the shard up when no receiver holds a session, the bridge that is to own the shard
        stands by, and nothing is unconfirmed that leaves the shard.
        """
        while True:
            await asyncio.sleep(PAUSE_S if self._handing_over.is_begun else SWEEP_S)
            for count, _ in enumerate(() if self.messages.queue.held else self.messages.sweep()):
                if count % SWEPT_AT_ONCE == SWEPT_AT_ONCE - 1:
                    await asyncio.sleep(0)
            if not self._compacts_logs:
                await self._refresh()
            if self._is_used or not await self._elsewhere():
                self._stay()
            elif await self._may_hand_over():
                self._hand_over()
                return
            try:
                with await self._services.connections.channel() as channel:
                    state = await channel.declarations.declare_queue(
                        self.messages.resource, passive=True
                    )
                self.natives = max(state.consumers - windows.consumers, 0)
            except BrokerError as error:
                log.info("session.unseen queue=%s error=%s", self.messages.resource, error)

    async def _may_hand_over(self) -> bool:
        """Wait for what is unconfirmed, for `PAUSE_S` at most; the owner goes on meanwhile.

        Returns:
            Whether the next owner will have nothing that is in another place, too.
        """
        self._handing_over.begin(HANDS_OVER)
        loop = asyncio.get_running_loop()
        end_s = loop.time() + PAUSE_S
        while not self._is_used and loop.time() < end_s:
            if self._is_settled:
                return True
            await asyncio.sleep(LOOK_S)
        return False

    @property
    def _is_used(self) -> bool:
        """Whether a receiver, or a transaction, has a session."""
        return bool(self.messages.machine.holders or self.pinned)

    @property
    def _is_settled(self) -> bool:
        """Whether RabbitMQ has applied all that was settled, and nothing is on its way out."""
        windows = self.messages.windows
        if self._services.departure.under_way(self.messages) or self.stored.is_changing:
            return False
        return windows is None or not (windows.linger_s or self.ownership.linger_s)

    def _stay(self) -> None:
        """Note that no other bridge is to own the shard now, or that one does."""
        self._handing_over.end()

    async def _refresh(self) -> None:
        """Publish old messages again, to keep the queue's log short (`machine.sessions.ages`)."""
        for _ in range(REFRESHES_MAX):
            if not self.messages.refresh(REFRESHED_AT_ONCE):
                return
            await asyncio.sleep(REFRESH_S)
