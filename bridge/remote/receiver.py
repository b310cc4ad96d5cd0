"""A receiver of a remote namespace."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from bridge.machine.amqp10.client_link import ClientIncomingLink
from bridge.machine.amqp10.client_session import ClientSession
from bridge.machine.amqp10.events import (
    ClientEvent,
    DeliveriesSettled,
    Drained,
    LinkDetached,
    MessageArrived,
)
from bridge.machine.amqp10.termini import FIRST, SECOND, SETTLED, UNSETTLED
from bridge.remote.attachment import ATTACH_S, Attachment
from bridge.remote.connection import RemoteConnection
from bridge.remote.delivery import RemoteDelivery, token_of_tag
from bridge.remote.errors import (
    CONNECTION_FORCED,
    LOCK_LOST,
    RemoteConnectionLost,
    RemoteError,
    RemoteLinkEnded,
    RemoteLockLost,
    RemoteTimeout,
)
from bridge.remote.message import RemoteMessage
from bridge.remote.outcomes import (
    Release,
    RemoteOutcome,
    amqp_outcome,
)
from bridge.remote.settlements import Settlements
from bridge.wire.amqp10.errors import DecodeError
from bridge.wire.amqp10.performatives import Accepted, Released, Source, Target
from bridge.wire.amqp10.scalars import Symbol

if TYPE_CHECKING:
    from bridge.remote.namespace import RemoteNamespace

log = logging.getLogger("busbridge.remote")

ReceiveMode = Literal["peek-lock", "receive-and-delete"]

MORE_S = 0.02
"""How long more messages are awaited behind one (.NET's receivers: 20 ms)."""

DRAIN_S = 5.0
"""How long the server may take to give credit back; what comes later is kept for the next call."""

CLOSED = "The receiver was closed by this client."


class RemoteReceiver:
    """Receives from a queue, a subscription or a dead-letter queue.

    A link that has ended is attached again by the next call. One task receives at a time; any
    number may settle.

    Args:
        credit, until_settled, once: see `RemoteNamespace.receiver`.

    Attributes:
        entity: the entity's path.
        mode: whether a message stays, locked, until it is settled.

    Raises:
        ValueError: credit in receive-and-delete mode: what comes ahead is deleted, and would be
            lost with this process.
    """

    def __init__(
        self,
        namespace: RemoteNamespace,
        entity: str,
        mode: ReceiveMode,
        credit: int = 0,
        *,
        until_settled: bool = False,
        once: bool = False,
    ) -> None:
        if credit and mode == "receive-and-delete":
            raise ValueError("Messages that are received and deleted do not come ahead.")
        self.entity = entity
        self.mode = mode
        self._namespace = namespace
        self._credit = credit
        self._until_settled = until_settled
        self._once = once
        self._attachment: Attachment | None = None
        self._link: ClientIncomingLink | None = None
        self._attaching = asyncio.Lock()
        self._receiving = asyncio.Lock()
        self._arrived: deque[RemoteDelivery] = deque()
        self._changed = asyncio.Event()
        self._settlements = Settlements(entity)
        self._is_closed = False

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.entity!r} {self._link!r} arrived={len(self._arrived)}>"
        )

    async def attach(self) -> None:
        """Attach the link, if it is not; raises RemoteError."""
        await self._namespace.patience.repeat(self._attached)

    # -- receiving

    async def receive(
        self, max_messages: int, max_wait_s: float, *, more_s: float = MORE_S
    ) -> list[RemoteDelivery]:
        """Return messages: as many as come at once, `max_messages` at most.

        Args:
            max_wait_s: how long to wait for the first one; none has come: an empty list.
            more_s: how long to wait for each one behind it; 0: what is there is returned.

        Raises:
            RemoteError: the server's refusal, or the connection's end, after the namespace's
                patience.
        """
        end_s = asyncio.get_running_loop().time() + max_wait_s
        async with self._receiving:
            return await self._namespace.patience.repeat(
                lambda: self._receive(max_messages, end_s, more_s)
            )

    async def _receive(self, count: int, end_s: float, more_s: float) -> list[RemoteDelivery]:
        if not self._arrived and count > 0:
            link = self._link if self._link is not None and self._link.is_open else None
            await self._await_first(link or await self._attached(), count, end_s)
        if len(self._arrived) < count and self._link is not None and self._link.is_open:
            await self._await_more(self._link, count, more_s)
        found = [self._arrived.popleft() for _ in range(min(count, len(self._arrived)))]
        self._top_up()
        return found

    async def _await_first(self, link: ClientIncomingLink, count: int, end_s: float) -> None:
        """Wait for a message, or for the end of the time."""
        if not self._credit and link.credit < count:
            link.grant(count)
            self._flush()
        loop = asyncio.get_running_loop()
        while not self._arrived:
            left_s = end_s - loop.time()
            if left_s <= 0:
                return
            if not link.is_open:
                raise self._why()
            await self._await_change(left_s)

    async def _await_more(self, link: ClientIncomingLink, count: int, more_s: float) -> None:
        """Take what comes together with the first message, then give the other credit back."""
        while more_s and 0 < len(self._arrived) < count and link.credit > 0 and link.is_open:
            known = len(self._arrived)
            await self._await_change(more_s)
            if len(self._arrived) == known:
                break
        if not self._credit:
            await self._drain(link)

    async def _drain(self, link: ClientIncomingLink) -> None:
        """Give unused credit back, and wait for what comes before the server has taken it."""
        if link.credit <= 0 or not link.is_open:
            return
        link.drain()
        self._flush()
        loop = asyncio.get_running_loop()
        end_s = loop.time() + DRAIN_S
        while link.is_draining and link.is_open and loop.time() < end_s:
            await self._await_change(end_s - loop.time())

    async def _await_change(self, within_s: float) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(within_s):
                await self._changed.wait()
        except TimeoutError:
            return

    def _top_up(self) -> None:
        """Let the server send ahead, when much of what it might has come and is taken."""
        link = self._link
        if not self._credit or link is None or not link.is_open:
            return
        free = self._credit - len(link.unsettled if self._until_settled else self._arrived)
        if 2 * link.credit <= free:
            link.grant(free)
            self._flush()

    # -- settling

    async def settle(
        self, delivery: RemoteDelivery, outcome: RemoteOutcome, *, within_s: float = ATTACH_S
    ) -> None:
        """Settle a message; return when the server has confirmed it.

        What a busy server refuses is settled by its lock when the pause is over, as long as the
        namespace's patience lasts.

        Several may be settled at the same time: their dispositions share frames. A message whose
        link has ended meanwhile is settled at `$management`, as long as its lock lives. `Release`
        is not confirmed: if it is lost, the lock ends by itself. Nothing is by a server that has
        answered the attach with another settle mode (neither Azure nor a bridge does).

        Raises:
            ValueError: the message was received and deleted.
            RemoteLockLost: the lock has ended; the message will come again.
            RemoteConnectionLost, RemoteLinkEnded, RemoteTimeout: with `in_doubt` it may have been
                settled.
        """
        await self._namespace.patience.repeat(
            lambda: self.settle_all((delivery,), outcome, within_s=within_s)
        )

    async def settle_all(
        self,
        deliveries: Sequence[RemoteDelivery],
        outcome: RemoteOutcome,
        *,
        within_s: float = ATTACH_S,
    ) -> None:
        """Settle messages in one way, by few frames; return when the server has confirmed all.

        Raises the first error, see `settle`, when all are confirmed or have failed. Nothing is
        told a second time. Messages whose link has ended are given up together when the server is
        not reached.
        """
        asked: list[asyncio.Future[Any]] = []
        apart: list[RemoteDelivery] = []
        state = amqp_outcome(outcome)
        for each in deliveries:
            if each.lock_token is None and not each.delivery_tag:
                raise ValueError("A message that was received and deleted is not settled.")
            link, number = each.place or (None, 0)
            if link is None or not link.is_open or number not in link.unsettled:
                apart.append(each)
                continue
            if isinstance(state, Released) or link.peer.rcv_settle_mode == FIRST:
                link.tell_outcome(number, state, is_settled=True)
            else:
                asked.append(self._settlements.ask(link, number, state))
        self._flush()
        if self._until_settled:
            self._top_up()
        errors: list[RemoteError] = []
        if asked:
            errors += await self._settlements.results(asked, state, within_s)
        for each in apart:
            try:
                await self._settle_apart(each, outcome)
            except RemoteError as error:
                errors.append(error)
                if isinstance(error, RemoteConnectionLost | RemoteTimeout):
                    break  # each of the others would wait as long, and its lock ends by itself
        if errors:
            raise errors[0]

    async def _settle_apart(self, delivery: RemoteDelivery, outcome: RemoteOutcome) -> None:
        """Settle a message whose link has ended, by its lock."""
        if isinstance(outcome, Release) or delivery.lock_token is None:
            text = "The link of the message has ended; its lock ends by itself."
            raise RemoteLockLost(LOCK_LOST, text)
        management = self._namespace.management_of(self.entity)
        await management.settle_deferred((delivery.lock_token,), outcome)

    # -- the link

    async def _attached(self) -> ClientIncomingLink:
        async with self._attaching:
            if self._is_closed:
                raise RemoteConnectionLost(CONNECTION_FORCED, CLOSED, False)
            if self._link is not None and self._link.is_open:
                return self._link
            if self._once and self._link is not None:
                raise self._why()
            link = await self._namespace.attached(self.entity, self._attach_on)
            self._top_up()
            return link

    async def _attach_on(self, connection: RemoteConnection) -> ClientIncomingLink:
        session = connection.begin()
        attachment = Attachment(connection, self._on_event)
        link = await attachment.open(
            lambda: self._ask(session), self.entity, within_s=self._attach_s
        )
        try:
            self._take_answer(link)
        except RemoteError:
            attachment.drop(link)
            raise
        self._attachment, self._link = attachment, link
        return link

    _attach_s = ATTACH_S

    def _ask(self, session: ClientSession) -> ClientIncomingLink:
        """Write the attach."""
        name = str(uuid4())
        is_locked = self.mode == "peek-lock"
        return session.attach_receiver(
            name,
            Source(self.entity, filter=self._filter()),
            Target(f"receiver-link-{name}"),
            snd_settle_mode=UNSETTLED if is_locked else SETTLED,
            rcv_settle_mode=SECOND if is_locked else FIRST,
            properties={Symbol("com.microsoft:receiver-name"): name, **self._properties()},
        )

    def _filter(self) -> dict[Any, Any] | None:
        """Return the filters of the source."""
        return None

    def _properties(self) -> dict[Any, Any]:
        """Return what the attach says beside the receiver's name."""
        return {}

    def _take_answer(self, link: ClientIncomingLink) -> None:
        """Read the server's attach."""

    def _why(self) -> RemoteError:
        assert self._attachment is not None
        return self._attachment.ended or RemoteLinkEnded(CONNECTION_FORCED, CLOSED, False)

    def _flush(self) -> None:
        if self._attachment is not None:
            self._attachment.connection.flush_soon()

    def _on_event(self, event: ClientEvent) -> None:
        match event:
            case MessageArrived():
                self._take(event)
                self._changed.set()
            case DeliveriesSettled():
                self._settlements.on_settled(event)
                if self._until_settled:
                    self._top_up()
            case Drained():
                self._changed.set()
            case LinkDetached(link):
                self._changed.set()
                self._settlements.lose(link, self._why())

    def _take(self, event: MessageArrived) -> None:
        link, number = event.link, event.delivery_id
        assert isinstance(link, ClientIncomingLink)
        tag = link.unsettled.get(number, b"")
        try:
            message = RemoteMessage.read(event.payload)
        except DecodeError as error:
            log.warning("message.unreadable entity=%s error=%s", self.entity, error)
            message = RemoteMessage(unread=event.payload)
        if event.is_settled:
            self._arrived.append(RemoteDelivery(message, None, b""))
            return
        if self.mode == "receive-and-delete":  # the server has not settled it, as it was asked to
            link.tell_outcome(number, Accepted(), is_settled=True)
            self._arrived.append(RemoteDelivery(message, None, b""))
            self._flush()
            return
        self._arrived.append(RemoteDelivery(message, token_of_tag(tag), tag, (link, number)))

    async def close(self) -> None:
        """Give back (released) what was not settled, and detach the link.

        What came late in receive-and-delete mode is kept: `receive` returns it still.
        """
        self._is_closed = True
        self._namespace.forget(self)
        link, attachment = self._link, self._attachment
        if link is None or attachment is None or not link.is_open:
            return
        await self._drain(link)
        for number in list(link.unsettled):
            if (link, number) not in self._settlements:
                link.tell_outcome(number, Released(), is_settled=True)
        await self._settlements.wait(DRAIN_S)
        if self.mode == "peek-lock":
            self._arrived.clear()
        await attachment.end(link)
