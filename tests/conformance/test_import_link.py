"""The client's link that imports: what is refused for a while is sent again, on another link."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from bridge.commands.migration.holding import holds
from bridge.engine.import_verbs import StateImportVerbs
from bridge.message.envelopes import ImportedMessage
from bridge.model.errors import (
    ArgumentOutOfRange,
    EntityConflict,
    OperationTimeout,
    ServerBusy,
    ServiceBusError,
)
from bridge.model.name import EntityPath
from bridge.remote.errors import RemoteError, RemoteRefused
from bridge.remote.message import RemoteMessage
from bridge.remote.namespace import RemoteNamespace
from bridge.remote.patience import Patience
from bridge.wire.amqp10.scalars import Long, Timestamp
from bridge.wire.gaps import OWN
from bridge.wire.series_numbers import SeriesNumbers
from tests.bench.memory_namespace import MemoryNamespace
from tests.conformance.remote import remote
from tests.conformance.served import QUEUE, gateway

SHORT = Patience(total_s=30.0, wait_s=0.01, wait_max_s=0.01)


class AnsweredImports(MemoryNamespace):
    """Notes what is imported; says of the first transfers what it was made with."""

    def __init__(self, *answers: ServiceBusError) -> None:
        super().__init__(QUEUE)
        self.answers = list(answers)
        self.stored: list[int] = []
        self.asked = 0

    @property
    def importing(self) -> AnsweredImports:
        """Itself."""
        return self

    @property
    def states(self) -> StateImportVerbs:
        """There are messages only."""
        raise NotImplementedError

    def check(self, path: EntityPath, run: str) -> None:
        """The run `run-1` holds the queue."""
        if run != "run-1":
            raise EntityConflict("another run's")

    async def last_numbers(self, path: EntityPath, run: str) -> list[SeriesNumbers]:
        """As of two partitions, the second one's given to an import."""
        self.check(path, run)
        return [SeriesNumbers(OWN, 0, 7, False), SeriesNumbers(OWN, 1, 2**48 + 3, True)]

    async def store(self, path: EntityPath, run: str, batch: Sequence[ImportedMessage]) -> None:
        """Store a transfer, or raise the next answer."""
        self.asked += 1
        if self.answers:
            raise self.answers.pop(0)
        self.stored += [each.imported.number for each in batch]


@asynccontextmanager
async def importing(
    *answers: ServiceBusError,
) -> AsyncIterator[tuple[RemoteNamespace, AnsweredImports]]:
    """A client, and the namespace that it imports into."""
    namespace = AnsweredImports(*answers)
    async with gateway(namespace=namespace) as (_, port), remote(port, patience=SHORT) as client:
        yield client, namespace


def numbered(*numbers: int) -> list[RemoteMessage]:
    """Messages as an import takes them."""
    return [
        RemoteMessage.of(
            data=b"order",
            annotations={
                "x-opt-sequence-number": Long(number),
                "x-opt-enqueued-time": Timestamp(1_000),
            },
        )
        for number in numbers
    ]


async def test_a_transfer_that_a_busy_target_refuses_is_sent_again_and_stored_once() -> None:
    """As any send that is refused for a while: behind it the first link would take none."""
    async with importing(ServerBusy("later")) as (client, namespace):
        sender = await client.sender("q", import_run="run-1")
        await sender.send(numbered(1, 2))
        await sender.send(numbered(3))
        assert (namespace.stored, namespace.asked) == ([1, 2, 3], 3)


async def test_a_transfer_behind_one_that_was_refused_for_good_is_taken_by_another_link() -> None:
    """The refusal itself names what is wrong."""
    async with importing(ArgumentOutOfRange("too low")) as (client, namespace):
        sender = await client.sender("q", import_run="run-1")
        with pytest.raises(RemoteRefused, match="too low"):
            await sender.send(numbered(1))
        await sender.send(numbered(2))
        assert namespace.stored == [2]


async def test_a_transfer_whose_outcome_is_unknown_is_left_to_its_run() -> None:
    """Whoever sends it knows that it may be stored."""
    async with importing(OperationTimeout("who knows")) as (client, namespace):
        sender = await client.sender("q", import_run="run-1")
        with pytest.raises(RemoteError) as caught:
            await sender.send(numbered(1))
        assert caught.value.in_doubt
        assert (namespace.stored, namespace.asked) == ([], 1)


async def test_a_run_holds_what_takes_its_link() -> None:
    """Nothing is imported by that."""
    async with importing() as (client, namespace):
        assert await holds(client, "q", "run-1")
        assert not await holds(client, "q", "run-2")
        assert namespace.asked == 0


async def test_the_last_numbers_are_told_to_the_run_that_holds() -> None:
    """Of each partition, and whether an import has it; with the right Manage, of a whole entity."""
    async with importing() as (client, _):
        management = client.management_of("q")
        assert await management.last_numbers("run-1") == [(7, False), (2**48 + 3, True)]
        with pytest.raises(RemoteRefused, match="another run's"):
            await management.last_numbers("other")
        with pytest.raises(RemoteRefused, match="held as a whole"):
            await client.management_of("q/$deadletterqueue").last_numbers("run-1")
