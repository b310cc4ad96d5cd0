"""Asks leaders what transactions have settled, for whoever delivers; carries out what they tell."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from bridge.background.tasks import Tasks
from bridge.background.waits import Waits
from bridge.broker.errors import BrokerError, Unroutable
from bridge.engine.api import Disposition, OnSettled
from bridge.engine.counters import Counters
from bridge.engine.sending.requests import new_identity
from bridge.engine.sending.sender import Sender
from bridge.engine.settlement.disposition_fields import disposition_of
from bridge.engine.settlement.held_message import HeldMessage
from bridge.engine.settlement.locktable import Locked
from bridge.engine.settlement.owner import Owner
from bridge.engine.settlement.settling import drop_copy
from bridge.machine.queue.inquiries import locked_message
from bridge.message.asking import Asking
from bridge.model.errors import ServiceBusError
from bridge.topology import names
from bridge.wire import envelope, inquiries
from bridge.wire.commits import (
    INQUIRY_BYTES,
    LockedMessage,
    OutcomeKind,
    StateOutcome,
    decode_states,
    shard_of_states,
)
from bridge.wire.inquiries import Told

AGAIN_S: Final = 1.0
"""The time between two attempts to ask a leader."""

REASON: Final = "receiving goes on when its leader has told what transactions have settled"

CarryOut = Callable[[Locked, Disposition, OnSettled], None]
"""See `Settling.carry_out`."""

log = logging.getLogger(__name__)


class BridgeInquirer:
    """See `message.asking.Inquirer`.

    Args:
        carry_out: settles a message as was decided.
        report: called with the path of a queue or topic, and with a message whose outcome is
            carried out.
        on_missing: called with the path of an entity whose inbox is missing.
    """

    def __init__(
        self,
        sender: Sender,
        waits: Waits,
        counters: Counters,
        carry_out: CarryOut,
        report: Callable[[str, LockedMessage], None],
        on_missing: Callable[[str], None],
    ) -> None:
        self._sender = sender
        self._waits = waits
        self._counters = counters
        self._carry_out = carry_out
        self._report = report
        self._on_missing = on_missing
        self._asking: set[Asking] = set()
        self._tasks = Tasks()

    def __repr__(self) -> str:
        return f"BridgeInquirer({len(self._asking)} queues)"

    def begin(self, asking: Asking) -> None:
        """Ask for what is to be asked for; repeat that until all is answered."""
        if asking not in self._asking:
            self._asking.add(asking)
            self._tasks.start(self._ask_all(asking), f"inquiries of {asking.resource}")

    def carry_out(self, owner: Owner, held: HeldMessage, told: Told, asking: Asking) -> None:
        """Settle a message as its leader has told, and tell the leader when that is done."""
        assert told is not None
        if told[0] is OutcomeKind.DROP:
            self._counters.second_copies += 1
            drop_copy(owner, held)
            return
        done = partial(self._done, asking.front, locked_message(held, asking.source))
        self._carry_out((owner, held), disposition_of(*told), done)

    async def states(
        self, resource: str, front: str, source: bytes, shard: int
    ) -> tuple[bytes, list[StateOutcome]]:
        """Ask for states; see `message.asking.Inquirer`."""
        with self._waits.begin(resource, REASON):
            while True:
                identity = new_identity()
                try:
                    asked = [shard_of_states(source, shard)]
                    (told,) = await self._answer(front, identity, asked)
                    states = [] if told is None else decode_states(told[1])
                    return identity[:INQUIRY_BYTES], states
                except (ServiceBusError, BrokerError, ValueError) as error:
                    log.info("inquiry.unanswered queue=%s error=%s", resource, error)
                await asyncio.sleep(AGAIN_S)

    def report(self, front: str, message: LockedMessage) -> None:
        """Tell a leader that an outcome is carried out."""
        self._report(front, message)

    async def close(self) -> None:
        """Ask for nothing any more."""
        self._tasks.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _done(self, front: str, message: LockedMessage, error: ServiceBusError | None) -> None:
        if error is None:  # else it comes again, and whoever gets it asks
            self._report(front, message)

    async def _ask_all(self, asking: Asking) -> None:
        """Ask as long as there is something to ask for."""
        try:
            with self._waits.begin(asking.resource, REASON):
                while await self._ask(asking):
                    pass
        finally:
            self._asking.discard(asking)

    async def _ask(self, asking: Asking) -> bool:
        """Ask once; return `False` if there was nothing to ask for."""
        identity = new_identity()
        inquiry = identity[:INQUIRY_BYTES]
        messages = asking.question(inquiry)
        if not messages:
            return False
        try:
            told = await self._answer(asking.front, identity, messages)
        except (ServiceBusError, BrokerError, ValueError) as error:
            log.info("inquiry.unanswered queue=%s error=%s", asking.resource, error)
            asking.failed(inquiry)
            await asyncio.sleep(AGAIN_S)
            return True
        try:
            asking.answered(inquiry, told)
        except Exception as error:  # what is asked for next must not wait for ever
            log.error("inquiry.failed queue=%s", asking.resource, exc_info=error)
        return True

    async def _answer(
        self, front: str, identity: bytes, messages: list[LockedMessage]
    ) -> list[Told]:
        """Return a leader's answer, behind all that came to its inbox before.

        Raises:
            ServiceBusError, BrokerError: there is none.
            ValueError: it is none to so many messages.
        """
        body = inquiries.encode_inquiry(identity, messages)
        try:
            done = await self._sender.ask(
                "", names.inbox(front), envelope.HEADERS, body, persistent=True
            )
        except Unroutable:
            self._on_missing(front)
            raise
        told = inquiries.decode_answer(done.content)
        if len(told) != len(messages):
            raise ValueError(f"an answer of {len(told)} to an inquiry for {len(messages)}")
        return told
