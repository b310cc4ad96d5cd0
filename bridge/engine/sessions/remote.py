"""Receivers in other processes: what they hear of sessions, and what they ask of owners here."""

from __future__ import annotations

import asyncio
from functools import partial

from bridge.broker.errors import BrokerError, Unroutable
from bridge.engine import texts
from bridge.engine.peers import Peers
from bridge.engine.sessions.answers import answer
from bridge.engine.sessions.events import (
    Event,
    Given,
    Lost,
    Message,
    encode_event,
)
from bridge.engine.sessions.owner import SessionOwner
from bridge.engine.sessions.owners import Owners
from bridge.engine.tasks import Tasks
from bridge.model.errors import ServerBusy, ServiceBusError, SessionLockLost
from bridge.model.name import parse_path
from bridge.wire import sessions as wire
from bridge.wire.basic import Table, text
from bridge.wire.reply import encode_done, encode_found
from bridge.wire.sessions import Key, integer, string

HEARD_S = 3.0
"""A bridge that has not heard within this time what was given to who waits there cannot be reached.
"""

AGAIN_S = 1.0
"""So long after a bridge could not be told of an end it is told again."""


class RemoteReceivers:
    """The other end of `Remote`.

    Attributes:
        owners: what owns sessions here.
        peers: tells other bridges.
    """

    def __init__(self) -> None:
        self._told: dict[Key, int] = {}
        self._asking: Key | None = None
        self._checks = Tasks()
        self._is_closed = False
        self.owners: Owners
        self.peers: Peers

    def __repr__(self) -> str:
        return f"RemoteReceivers({len(self._told)} told)"

    def tell(self, key: Key, event: Event) -> None:
        """Have a receiver hear something."""
        if isinstance(event, Message):
            self._told[key] = self._told.get(key, 0) + 1
        elif not isinstance(event, Given):
            self._told.pop(key, None)
        told = partial(self._on_told, key, event)
        try:
            self.peers.post(key[0], encode_event(key[1], event), told)
        except (BrokerError, ServiceBusError) as error:
            told(BrokerError(text=str(error)))
        if isinstance(event, Given) and key != self._asking:
            self._checks.start(self._see_heard(key))

    async def carry_out(self, what: str, question: Table) -> bytes:
        """Do what another bridge asks; return the reply.

        Raises:
            ServiceBusError: the answer.
        """
        shard = parse_path(string(question, "path")).key, wire.shard_in(question)
        owner = self.owners.ready(shard)
        key = wire.receiver_in(question)
        if key is not None:
            return self._of_receiver(what, owner, key, question)
        if owner is None:
            if what == wire.LIST:
                raise ServerBusy(texts.SERVER_BUSY)
            raise SessionLockLost(texts.SESSION_LOCK_LOST)
        done = await answer(owner, what, question)
        return encode_found(done.content) if done.content else encode_done(done.numbers)

    def _of_receiver(
        self, what: str, owner: SessionOwner | None, key: Key, question: Table
    ) -> bytes:
        if owner is None:
            self.tell(key, Lost(has_moved=True))
            return encode_done((0,))
        if what == wire.ACCEPT:
            session_id = string(question, "session") if "session" in question else None
            self._asking = key  # its bridge is there: it has just asked
            owner.messages.accept(key, session_id, deletes=bool(integer(question, "deletes")))
            self._asking = None
        elif what == wire.CREDIT:
            owner.messages.add_credit(key, integer(question, "count"))
        elif what == wire.DRAIN:
            owner.messages.drain(key)
        else:
            unused = "unused" in question and bool(integer(question, "unused"))
            owner.messages.close(key, unused=unused)
            self._told.pop(key, None)
        return encode_done((self._told.get(key, 0),))

    def close(self) -> None:
        """Tell nothing more."""
        self._is_closed = True
        self._checks.cancel()

    async def _see_heard(self, key: Key) -> None:
        """Have the next receiver have what a bridge does not hear that one there has been given."""
        try:
            async with asyncio.timeout(HEARD_S):
                await self.peers.ask(key[0], {"do": text(wire.PING)})
        except TimeoutError:
            for owner in self.owners.all:
                for each in owner.messages.withdraw(key):
                    self.tell(each, Lost(has_moved=True))
        except (BrokerError, ServiceBusError):
            return  # `_on_told` hears of that, too

    def _on_told(self, key: Key, event: Event, error: BrokerError | None) -> None:
        """A bridge that does not hear what its receivers have has them no more."""
        if error is not None and not self._is_closed:
            is_gone = isinstance(error, Unroutable)
            asyncio.get_running_loop().call_soon(self._forget, key, event, is_gone)

    def _forget(self, unheard: Key, event: Event, is_gone: bool) -> None:
        bridge = unheard[0]
        ended = [key for key in self._told if key[0] == bridge]
        for owner in self.owners.all:
            ended += owner.messages.forget_bridge(bridge)
        ends: dict[Key, Event] = dict.fromkeys(ended, Lost(has_moved=True))
        ends[unheard] = event if isinstance(event, Lost) else Lost(has_moved=True)
        for key in ends:
            self._told.pop(key, None)
        if not is_gone:  # an alarm, a lost connection: it is there, and is to know
            asyncio.get_running_loop().call_later(AGAIN_S, self._tell_ends, ends)

    def _tell_ends(self, ends: dict[Key, Event]) -> None:
        for key, event in ends.items():
            if not any(owner.messages.knows(key) for owner in self.owners.all):
                self.tell(key, event)
