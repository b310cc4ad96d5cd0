"""Where a command's messages come from: a receiver, or, at a busbridge, their numbers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

from bridge.commands.looking import PAGE
from bridge.commands.taking_options import messages
from bridge.model.filters.errors import FilterException
from bridge.operations.selection import MessageSelection
from bridge.relay.running.judgement import number_of
from bridge.remote import outcomes
from bridge.remote.delivery import RemoteDelivery
from bridge.remote.errors import RemoteError, RemoteLockLost, RemoteRefused
from bridge.remote.management import RemoteManagement
from bridge.remote.message import RemoteMessage
from bridge.remote.receiver import RemoteReceiver

LOCKED_TOGETHER: Final = 250
"""Numbers of one request (a busbridge's bound)."""

AGAIN_S: Final = 1.0
"""The time between two requests for messages that somebody else has locked."""


class TakingSource(Protocol):
    """Gives messages, locked, and settles them."""

    async def receive(self, count: int, wait_s: float) -> list[RemoteDelivery]:
        """Return messages, `count` at most; none: none has come for `wait_s`."""

    async def settle(self, delivery: RemoteDelivery, outcome: outcomes.RemoteOutcome) -> None:
        """Settle a message; return when that is confirmed. Raises RemoteError."""

    def lost(self, delivery: RemoteDelivery) -> None:
        """Note that the lock of a message has ended."""

    async def close(self) -> None:
        """Give back what is not settled."""

    def rest(self) -> list[str]:
        """Return sentences about messages that are meant and were not given."""

    def is_named(self, number: int) -> bool:
        """Return whether those sentences are about a message, too."""


class ReceiverSource:
    """A receiver's messages: all that come, meant or not."""

    def __init__(self, receiver: RemoteReceiver) -> None:
        self._receiver = receiver

    async def receive(self, count: int, wait_s: float) -> list[RemoteDelivery]:
        """Return what comes."""
        return await self._receiver.receive(count, wait_s)

    async def settle(self, delivery: RemoteDelivery, outcome: outcomes.RemoteOutcome) -> None:
        """Settle a message."""
        await self._receiver.settle(delivery, outcome)

    def lost(self, delivery: RemoteDelivery) -> None:
        """It comes again by itself."""

    async def close(self) -> None:
        """Give back what is not settled."""
        await self._receiver.close()

    def rest(self) -> list[str]:
        """A receiver does not know what it was not given."""
        return []

    def is_named(self, number: int) -> bool:
        """There are no such sentences."""
        return False


class NumberedSource:
    """The messages that are meant, found by peeks and locked by their numbers.

    What stands before them is held by the bridge, and only while it looks for them.

    Args:
        management: of the entity.
        selection: what is meant; numbers are locked without a peek.
    """

    def __init__(self, management: RemoteManagement, selection: MessageSelection) -> None:
        self._management = management
        self._selection = selection
        self._waiting: deque[int] = deque(sorted(selection.numbers))
        self._is_looking = not selection.numbers
        self._next_number = 1
        self._locked: dict[RemoteDelivery, None] = {}
        self._again: dict[int, None] = {}
        self._unavailable: dict[int, None] = {}
        self._unreached: dict[int, None] = {}
        self._locking: asyncio.Task[list[RemoteDelivery]] | None = None

    async def receive(self, count: int, wait_s: float) -> list[RemoteDelivery]:
        """Return what is meant; more of it, and what others have locked, is awaited for `wait_s`.

        Messages whose numbers were given are the only ones that there are.
        """
        loop = asyncio.get_running_loop()
        end_s = loop.time() + wait_s
        count = min(count, LOCKED_TOGETHER)
        while True:
            await self._look(count)
            while self._waiting:
                if found := await self._lock(self._first(count)):
                    return found
                await self._look(count)
            if self._again and (found := await self._lock(list(self._again)[:count])):
                return found
            left_s = end_s - loop.time()
            if left_s <= 0 or not (self._is_looking or self._again):
                return []
            await asyncio.sleep(min(left_s, AGAIN_S))

    def _first(self, count: int) -> list[int]:
        return [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]

    async def _look(self, count: int) -> None:
        """Peek until so many numbers wait, or there are no more."""
        while self._is_looking and len(self._waiting) < count:
            page = await self._management.peek(self._next_number, PAGE)
            before = self._next_number
            for each in page:
                number = int(each.sequence_number or 0)
                self._next_number = max(self._next_number, number + 1)
                if number >= before and each.state == "active" and self._is_meant(each):
                    self._waiting.append(number)
            if self._next_number <= before:
                return

    def _is_meant(self, message: RemoteMessage) -> bool:
        """Whether to lock a message: also one that the condition cannot be held against."""
        try:
            return self._selection.takes(message)
        except FilterException:
            return True

    async def _lock(self, numbers: Sequence[int]) -> list[RemoteDelivery]:
        """Lock messages; who is cancelled meanwhile has them locked all the same, for `close`."""
        self._locking = asyncio.get_running_loop().create_task(self._ask(numbers))
        found = await asyncio.shield(self._locking)
        self._locking = None
        return found

    async def _ask(self, numbers: Sequence[int]) -> list[RemoteDelivery]:
        locked = await self._management.lock_messages(numbers)
        for number in numbers:
            for each in (self._again, self._unavailable, self._unreached):
                each.pop(number, None)
        self._again |= dict.fromkeys(locked.unavailable)
        if not self._is_looking:
            self._again |= dict.fromkeys(locked.missing)
        self._unavailable |= dict.fromkeys(locked.unavailable)
        self._unreached |= dict.fromkeys(locked.unreached)
        self._locked |= dict.fromkeys(locked.deliveries)
        return list(locked.deliveries)

    async def settle(self, delivery: RemoteDelivery, outcome: outcomes.RemoteOutcome) -> None:
        """Settle a message; what was given back, or perhaps not settled, is asked for again."""
        self._locked.pop(delivery, None)
        assert delivery.lock_token is not None, "it was locked"
        try:
            if isinstance(outcome, outcomes.Release):
                self._again[number_of(delivery)] = None
                await self._management.release_messages((delivery.lock_token,))
            else:
                await self._management.settle_deferred((delivery.lock_token,), outcome)
        except RemoteError:
            self._again[number_of(delivery)] = None
            raise

    def lost(self, delivery: RemoteDelivery) -> None:
        """Ask for the message again."""
        if self._locked.pop(delivery, self) is None:
            self._again[number_of(delivery)] = None

    async def close(self) -> None:
        """Give back what is not settled, and what a request that is under way still locks."""
        if self._locking is not None:
            with suppress(RemoteError):
                await self._locking
        tokens = [each.lock_token for each in self._locked if each.lock_token is not None]
        self._locked.clear()
        for at in range(0, len(tokens), LOCKED_TOGETHER):
            with suppress(RemoteLockLost):
                await self._management.release_messages(tokens[at : at + LOCKED_TOGETHER])

    def rest(self) -> list[str]:
        """Say what stands too far behind, and what somebody else has locked."""
        found = []
        if self._unreached:
            found.append(
                f"{messages(len(self._unreached))}, the first of them {min(self._unreached)}, "
                "stand behind more others than a bridge may hold. Remove some of those first."
            )
        if self._unavailable:
            found.append(
                f"{messages(len(self._unavailable))}, the first of them {min(self._unavailable)}, "
                "could not be had: somebody else has locked them. Give the same command to go on."
            )
        return found

    def is_named(self, number: int) -> bool:
        """Whether it stands too far behind, or somebody else has locked it."""
        return number in self._unreached or number in self._unavailable


async def source_of(
    management: RemoteManagement, receiver: RemoteReceiver, selection: MessageSelection | None
) -> TakingSource:
    """Return where the messages come from: by number, where something is selected and it can be.

    Args:
        receiver: of the entity; it is closed where it is not used.
    """
    if selection is None or selection.is_everything:
        return ReceiverSource(receiver)
    try:
        await management.lock_messages(())
    except RemoteRefused:  # Azure, RabbitMQ before 4.3, an entity with sessions
        return ReceiverSource(receiver)
    with suppress(RemoteError):
        await receiver.close()
    return NumberedSource(management, selection)
