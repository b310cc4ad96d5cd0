"""The way to one target: batches, and what a busbridge is told of each message."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from bridge.relay.machine.effects import Accepted, Failed, Refused, SendOutcome
from bridge.relay.machine.lowest import Lowest, partition_of
from bridge.relay.plan.source_identity import identified
from bridge.remote.errors import (
    SOURCE_UNKNOWN,
    RemoteBusy,
    RemoteError,
    RemoteRefused,
    RemoteUnauthorized,
)
from bridge.remote.message import RemoteMessage
from bridge.remote.namespace import RemoteNamespace
from bridge.remote.patience import BUSY_S
from bridge.remote.sender import RemoteSender

SEND_S = 30.0
"""How long a target may take to answer a batch; then it counts as away."""

BYTES_MAX = 256 * 1024
"""Bytes of a batch where the target has not said: Azure's Standard tier."""

RESERVED = 2_048
"""Bytes of a batch for what stands in front of its messages."""

OVERHEAD = 192
"""Bytes that a message takes in a batch besides its own: its place, and its identity."""

OF_THE_ENTITY = frozenset(
    {
        "com.microsoft:entity-disabled",
        "com.microsoft:operation-cancelled",
        "com.microsoft:not-implemented",
        "amqp:not-implemented",
        "amqp:connection:forced",
        "amqp:link:detach-forced",
        SOURCE_UNKNOWN,
    }
)
"""Refusals that say something of the entity, not of the message: the message is sent later."""


class SourceNumbers:
    """What the target may forget of a source: one for each partition of its numbers.

    Args:
        lag_ms: see `Lowest`.
        held: returns the numbers of the messages in hand.
        now_ms: returns the time.
    """

    def __init__(
        self, lag_ms: int, held: Callable[[], Iterable[int]], now_ms: Callable[[], int]
    ) -> None:
        self._lag_ms = lag_ms
        self._held = held
        self._now_ms = now_ms
        self._partitions: dict[int, Lowest] = {0: Lowest(0, lag_ms)}

    @property
    def partitions(self) -> Sequence[int]:
        """The partitions that messages have come from."""
        return tuple(self._partitions)

    def observe(self, number: int) -> None:
        """Note the lowest number of a partition that may yet come."""
        self._of(number).observe(number, self._now_ms())

    def told(self, numbers: Iterable[int]) -> dict[int, int]:
        """Return what is told with messages of these numbers, by partition."""
        first = {partition_of(each): each for each in numbers}
        held: dict[int, list[int]] = {partition: [] for partition in first}
        for each in self._held():
            if (found := held.get(partition_of(each))) is not None:
                found.append(each)
        now_ms = self._now_ms()
        return {
            partition: self._of(number).told(held[partition], now_ms)
            for partition, number in first.items()
        }

    def _of(self, number: int) -> Lowest:
        partition = partition_of(number)
        found = self._partitions.get(partition)
        if found is None:
            found = self._partitions[partition] = Lowest(partition, self._lag_ms)
        return found


class ToldNumbers(Protocol):
    """What a target is told that it may forget."""

    def told(self, numbers: Iterable[int]) -> Mapping[int, int]:
        """Return the lowest number that may yet come, by partition, of those of these numbers."""


class Outlet:
    """Sends to one target; any number of batches may be under way.

    Args:
        source: the name of the source, as a busbridge is told it; `None`: it is told none.
        numbers: what may be forgotten of the source.
        subscription: the only subscription of a topic that gets the messages, at a busbridge.
    """

    def __init__(
        self,
        namespace: RemoteNamespace,
        entity: str,
        source: str | None,
        numbers: ToldNumbers,
        subscription: str | None = None,
    ) -> None:
        self.entity = entity
        self._namespace = namespace
        self._source = source
        self._numbers = numbers
        self._subscription = subscription
        self._sender: RemoteSender | None = None

    async def open(self) -> None:
        """Attach the sender; raises RemoteError."""
        self._sender = await self._namespace.sender(
            self.entity, relay_source=self._source, subscription=self._subscription
        )

    async def close(self) -> None:
        """Detach it."""
        if self._sender is not None:
            await self._sender.close()

    @property
    def knows_source(self) -> bool:
        """Whether the target knows what comes twice."""
        return self._sender is not None and self._sender.knows_source

    @property
    def batch_bytes_max(self) -> int:
        """The most that the messages of a batch may take together."""
        sender = self._sender
        return ((sender.max_batch_size if sender is not None else 0) or BYTES_MAX) - RESERVED

    @property
    def message_bytes_max(self) -> int:
        """The largest message; 0 if the target has not said."""
        found = self._sender.max_message_size if self._sender is not None else 0
        return max(found - OVERHEAD, 1) if found else 0

    async def send(self, batch: Sequence[tuple[RemoteMessage, int, int]]) -> SendOutcome:
        """Send messages, each with its number and its enqueued time at the source, UTC ms."""
        sender = self._sender
        assert sender is not None
        try:
            await sender.attach()
        except RemoteError as error:
            return _failed(error)
        messages = [each[0] for each in batch]
        if sender.knows_source:
            lowest = self._numbers.told({number for _, number, _ in batch})
            messages = [identified(*each, lowest[partition_of(each[1])]) for each in batch]
        try:
            await sender.send(messages, within_s=SEND_S)
        except RemoteRefused as error:
            # In doubt: the link has ended, which says nothing of the message.
            if error.in_doubt or error.retryable or error.condition in OF_THE_ENTITY:
                return _failed(error)
            return Refused(error.condition, error.description)
        except RemoteError as error:
            return _failed(error)
        return Accepted()


def _failed(error: RemoteError) -> Failed:
    pause_s = max(error.pause_s, BUSY_S) if isinstance(error, RemoteBusy) else 0.0
    is_of_rights = isinstance(error, RemoteUnauthorized)
    return Failed(str(error), int(pause_s * 1000), is_of_rights, error.in_doubt)
