"""A relay's link at the gateway: who may open one, what it must say, and what is taken off."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from bridge.engine.texts import UNKNOWN_FEATURE
from bridge.gateway.connection import attaching
from bridge.message.envelopes import Outgoing
from bridge.model.entity import AuthorizationRule, Right
from bridge.model.errors import OperationTimeout, ServerBusy
from bridge.model.name import EntityPath
from bridge.relay.machine.effects import Accepted, Failed, Refused
from bridge.relay.running.outlet import OF_THE_ENTITY, Outlet, SourceNumbers
from bridge.remote.credentials import SharedKey
from bridge.remote.errors import (
    SOURCE_UNKNOWN,
    SUBSCRIPTION_UNKNOWN,
    RemoteBusy,
    RemoteError,
    RemoteRefused,
    RemoteUnauthorized,
)
from bridge.remote.message import RemoteMessage
from bridge.remote.namespace import RemoteNamespace
from bridge.remote.outcomes import Complete
from bridge.wire import relay_source
from bridge.wire.amqp10.scalars import Int, Long, Symbol, Timestamp
from bridge.wire.relay_source import SOURCE_LOWEST, SOURCE_NUMBER, SOURCE_TIME, copy_annotations
from tests.bench.memory_namespace import MemoryNamespace
from tests.conformance.door import ROOT_RULE
from tests.conformance.remote import ONCE, WAIT_S, remote, text
from tests.conformance.served import QUEUE, gateway
from tests.fixtures.waiting import until

SOURCE = "one.servicebus.windows.net/orders"
DIGEST = relay_source.digest_of(SOURCE)
INVALID = "amqp:invalid-field"
LARGE = 70_000
"""Bytes of a batch that the gateway decodes in slices."""


class Recording(MemoryNamespace):
    """Notes what a door hands over."""

    def __init__(self) -> None:
        super().__init__(QUEUE)
        self.taken: list[Outgoing] = []

    async def send(self, path: EntityPath, batch: Sequence[Outgoing]) -> None:
        """Store the messages."""
        self.taken += batch
        await super().send(path, batch)


@asynccontextmanager
async def relay(*rules: AuthorizationRule) -> AsyncIterator[tuple[RemoteNamespace, Recording]]:
    """Serve one queue, and connect to it."""
    recording = Recording()
    async with (
        gateway(*rules, namespace=recording) as (_, port),
        remote(port, patience=ONCE) as namespace,
    ):
        yield namespace, recording


def copy_of(number: int, lowest: int = 0, size: int = 1) -> RemoteMessage:
    """Return a copy with an annotation of its own, beside a relay's."""
    own = {Symbol("x-opt-own"): Long(2**40)}
    annotations = {**own, **copy_annotations(number, 1_000 + number % 1_000, lowest)}
    return RemoteMessage.of(data=b"x" * size, annotations=annotations)


@pytest.mark.parametrize("size", [1, LARGE])
async def test_each_message_of_a_batch_says_which_message_of_the_source_it_is(size: int) -> None:
    """A batch of any size, and a single message; consumers see the annotations of the sender."""
    async with relay() as (namespace, recording):
        sender = await namespace.sender("q", relay_source=SOURCE)
        assert sender.knows_source
        await sender.send([copy_of(1, size=size), copy_of(2, 1)])
        await sender.send([copy_of(3, 2)])
        assert [each.said for each in recording.taken] == [
            relay_source.say(DIGEST, 1, 1_001, 0),
            relay_source.say(DIGEST, 2, 1_002, 1),
            relay_source.say(DIGEST, 3, 1_003, 2),
        ]
        receiver = await namespace.receiver("q")
        for _ in range(3):
            (found,) = await receiver.receive(1, WAIT_S)
            said = found.message.annotation_values
            assert said[Symbol("x-opt-own")] == 2**40
            assert not {SOURCE_NUMBER, SOURCE_TIME, SOURCE_LOWEST} & set(said)
            await receiver.settle(found, Complete())


async def test_an_ordinary_sender_says_nothing_of_a_source() -> None:
    """And is told of none."""
    async with relay() as (namespace, recording):
        sender = await namespace.sender("q")
        await sender.send([text("a"), text("b")])
        assert not sender.knows_source
        assert [each.said for each in recording.taken] == [b"", b""]


async def test_a_source_needs_the_right_manage() -> None:
    """With the right Send alone anybody could make others' messages vanish."""
    rule = AuthorizationRule(name="S", primary_key="k", rights=frozenset({Right.SEND}))
    async with (
        gateway(ROOT_RULE, rule) as (_, port),
        remote(port, SharedKey("S", "k"), patience=ONCE) as namespace,
    ):
        with pytest.raises(RemoteUnauthorized, match="'Manage'"):
            await namespace.sender("q", relay_source=SOURCE)
        await namespace.sender("q")


@pytest.mark.parametrize("name", ["audit", "a/b", ""])
async def test_one_subscription_alone_is_one_of_a_topic(name: str) -> None:
    """A queue has none: the link is refused, and nothing goes to anybody."""
    async with relay() as (namespace, _):
        with pytest.raises(RemoteError):
            await namespace.sender("q", relay_source=SOURCE, subscription=name)
        await namespace.sender("q", relay_source=SOURCE)


async def test_a_namespace_that_would_give_it_to_all_subscriptions_is_sent_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Azure, or an older bridge: it takes the attach, and does not answer the property."""
    monkeypatch.setattr(attaching, "source_of", lambda properties: None)
    monkeypatch.setattr(attaching, "refuse_without_source", lambda properties: None)
    async with relay() as (namespace, recording):
        with pytest.raises(RemoteRefused, match="to all of its subscriptions") as caught:
            await namespace.sender("q", relay_source=SOURCE, subscription="audit")
        assert caught.value.condition == SUBSCRIPTION_UNKNOWN
        outlet = Outlet(namespace, "q", SOURCE, SourceNumbers(0, list, lambda: 0), "audit")
        with pytest.raises(RemoteRefused):
            await outlet.open()
        assert recording.taken == []


async def test_a_subscription_without_a_source_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """All would get what is sent."""
    async with relay() as (namespace, recording):
        monkeypatch.setattr("bridge.remote.sender.RELAY_SOURCE", Symbol("com.example:other"))
        with pytest.raises(RemoteError, match="relay-subscription") as caught:
            await namespace.sender("q", relay_source=SOURCE, subscription="audit")
        assert caught.value.condition == INVALID
        assert recording.taken == []


@pytest.mark.parametrize("name", ["", "x" * 401])
async def test_a_name_of_a_source_has_1_to_400_characters(name: str) -> None:
    """Another one is refused."""
    async with relay() as (namespace, _):
        with pytest.raises(RemoteError, match="1 to 400") as caught:
            await namespace.sender("q", relay_source=name)
        assert caught.value.condition == INVALID
        await namespace.sender("q", relay_source="x" * 400)


WRONG = {
    "none": {},
    "no lowest": {SOURCE_NUMBER: Long(1), SOURCE_TIME: Timestamp(1)},
    "an int": {**copy_annotations(1, 1, 1), SOURCE_NUMBER: Int(1)},
    "a long for a time": {**copy_annotations(1, 1, 1), SOURCE_TIME: Long(1)},
    "a lowest above the number": copy_annotations(1, 1, 2),
    "a lowest of another partition": copy_annotations(1 << 48, 1, 1),
    "a negative number": copy_annotations(-1, 1, -1),
    "a time before 1970": copy_annotations(1, -1, 1),
}


@pytest.mark.parametrize("what", WRONG)
async def test_what_a_copy_says_must_be_whole_and_right(what: str) -> None:
    """One that does not is refused, and all of its batch with it; the link lives."""
    async with relay() as (namespace, recording):
        sender = await namespace.sender("q", relay_source=SOURCE)
        wrong = RemoteMessage.of(data=b"", annotations=WRONG[what])
        for batch in ([wrong], [copy_of(1), wrong], [copy_of(1, size=LARGE), wrong]):
            with pytest.raises(RemoteError) as caught:
                await sender.send(batch)
            assert caught.value.condition == INVALID
            assert not caught.value.retryable
        assert not recording.taken
        await sender.send([copy_of(1)])
        assert len(recording.taken) == 1


@pytest.mark.parametrize("annotation", [SOURCE_NUMBER, SOURCE_TIME, SOURCE_LOWEST])
async def test_without_a_source_nothing_may_be_said_of_one(annotation: Symbol) -> None:
    """A message of another link that says so is refused, by itself and in a batch."""
    async with relay() as (namespace, recording):
        sender = await namespace.sender("q")
        wrong = RemoteMessage.of(data=b"", annotations={annotation: Long(1)})
        for batch in ([wrong], [text("a"), wrong]):
            with pytest.raises(RemoteRefused, match=annotation) as caught:
                await sender.send(batch)
            assert caught.value.condition == INVALID
        management = await namespace.management("q")
        with pytest.raises(RemoteRefused, match=annotation):
            await management.schedule([wrong])
        assert not recording.taken


async def test_a_source_that_was_made_anew_is_copied_on_the_same_link() -> None:
    """It counts from 1 again, and its messages are newer than what was told before."""
    async with relay() as (namespace, recording):
        sender = await namespace.sender("q", relay_source=SOURCE)
        await sender.send([copy_of(900, 900)])
        anew = [
            RemoteMessage.of(data=b"", annotations=copy_annotations(number, 5_000 + number, 1))
            for number in (2, 1, 3)
        ]
        for batch in (anew, anew):
            await sender.send(batch)
        with pytest.raises(RemoteError, match="cannot come again"):
            await sender.send([copy_of(901, 901), copy_of(5)])
        assert len(recording.taken) == 7


@pytest.mark.parametrize("batch", [[copy_of(4)], [copy_of(5), copy_of(4, size=LARGE)]])
async def test_a_message_below_its_own_lowest_is_refused(batch: list[RemoteMessage]) -> None:
    """Its relay is wrong: what it has told as gone is not stored, and not told as accepted."""
    async with relay() as (namespace, recording):
        sender = await namespace.sender("q", relay_source=SOURCE)
        await sender.send([copy_of(9, 5), copy_of(6, 2), copy_of(1 << 48, 1 << 48)])
        with pytest.raises(RemoteRefused, match="cannot come again") as caught:
            await sender.send(batch)
        assert caught.value.condition == INVALID
        assert not caught.value.in_doubt
        assert len(recording.taken) == 3
        await sender.send([copy_of(10)])
        assert len(recording.taken) == 4


async def test_a_relays_annotations_do_not_count_as_its_message() -> None:
    """The largest message goes with them: the engine judges its size without them."""
    largest = RemoteMessage.of(data=b"x" * 9_992)
    assert len(largest.encode()) == 10_000
    copy = replace(
        largest, annotations=RemoteMessage.of(annotations=copy_annotations(1, 1, 1)).annotations
    )
    recording = Recording()
    async with (
        gateway(namespace=recording, message_bytes_max=10_000) as (_, port),
        remote(port, patience=ONCE) as namespace,
    ):
        await (await namespace.sender("q", relay_source=SOURCE)).send([copy])
    assert [each.size_bytes for each in recording.taken] == [10_000]


async def test_a_sender_goes_on_only_where_its_source_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An older bridge in place of the first would store copies that came before once more."""
    recording = Recording()
    async with (
        gateway(namespace=recording) as (served, port),
        remote(port, patience=ONCE) as namespace,
    ):
        sender = await namespace.sender("q", relay_source=SOURCE)
        await sender.send([copy_of(9, 9)])
        with monkeypatch.context() as older:
            older.setattr(attaching, "source_of", lambda properties: None)
            (connection,) = served.connections
            connection.abort()
            await until(lambda: not sender._link.is_open)
            for _ in range(2):
                with pytest.raises(RemoteRefused, match="heeds the source") as caught:
                    await sender.send([copy_of(10)])
                assert caught.value.condition == SOURCE_UNKNOWN
        await sender.send([copy_of(11)])
        assert [relay_source.read(each.said)[1] for each in recording.taken] == [9, 11]


async def test_a_message_that_its_relay_has_told_as_gone_follows_on_refused() -> None:
    """The relay's look at its source was wrong: the message stays there, for somebody to see."""
    held = [9]
    numbers = SourceNumbers(0, lambda: held, lambda: 0)
    async with relay() as (namespace, recording):
        outlet = Outlet(namespace, "q", SOURCE, numbers)
        await outlet.open()
        numbers.observe(9)
        assert await outlet.send([(text("a"), 9, 900)]) == Accepted()
        held[:] = [4]
        refused = await outlet.send([(text("b"), 4, 400)])
        assert isinstance(refused, Refused)
        assert refused.condition == INVALID
        assert "cannot come again" in refused.description
        assert len(recording.taken) == 1
        await outlet.close()


class WithEarlierBridge(Recording):
    """Has a bridge beside it that knows no relay's source.

    Attributes:
        is_there: whether that runs.
    """

    is_there = False

    def check_known(self, feature: str) -> None:
        """Refuse as the engine does."""
        if self.is_there:
            raise ServerBusy(UNKNOWN_FEATURE.format(feature=feature))


async def test_while_a_bridge_of_an_earlier_version_runs_a_relay_waits() -> None:
    """As the next leader it would number a copy twice; other senders go on."""
    recording = WithEarlierBridge()
    async with (
        gateway(namespace=recording) as (_, port),
        remote(port, patience=ONCE) as namespace,
    ):
        sender = await namespace.sender("q", relay_source=SOURCE)
        other = await namespace.sender("q")
        await sender.send([copy_of(1)])
        recording.is_there = True
        with pytest.raises(RemoteBusy, match="earlier version"):
            await sender.send([copy_of(2)])
        with pytest.raises(RemoteBusy, match="earlier version"):
            await namespace.sender("q", relay_source=SOURCE)
        await other.send([text("a")])
        recording.is_there = False
        await sender.send([copy_of(2)])
    assert [each.said and relay_source.read(each.said)[1] for each in recording.taken] == [
        1,
        b"",
        2,
    ]


class Silent(Recording):
    """Knows of the first batch neither that it is stored nor that it is not."""

    def begin_sending(
        self, path: EntityPath, batch: Sequence[Outgoing], done: Callable[..., None]
    ) -> None:
        """End the first batch in doubt."""
        if self.taken:
            super().begin_sending(path, batch, done)
        else:
            self.taken += batch
            done(OperationTimeout("nobody knows"))


async def test_a_relay_whose_link_ends_has_no_message_refused() -> None:
    """It sends again on another link: a message that was refused for good becomes a dead letter."""
    numbers = SourceNumbers(0, lambda: [9], lambda: 0)
    async with (
        gateway(namespace=Silent()) as (_, port),
        remote(port, patience=ONCE) as namespace,
    ):
        outlet = Outlet(namespace, "q", SOURCE, numbers)
        await outlet.open()
        assert isinstance(await outlet.send([(text("a"), 9, 900)]), Failed)
        assert await outlet.send([(text("a"), 9, 900)]) == Accepted()
        await outlet.close()


async def test_a_newer_bridge_in_place_of_one_that_knew_no_source_refuses_no_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was made for the older one says nothing of its source; it is made anew and sent."""
    recording = Recording()
    async with gateway(namespace=recording) as (served, port), remote(port) as namespace:
        with monkeypatch.context() as older:
            older.setattr(attaching, "source_of", lambda properties: None)
            sender = await namespace.sender("q", relay_source=SOURCE)
            await sender.send([text("a")])
            assert not sender.knows_source
        (connection,) = served.connections
        connection.abort()
        await until(lambda: not sender._link.is_open)
        with pytest.raises(RemoteRefused, match="heeds the source") as caught:
            await sender.send([text("b")])
        assert caught.value.condition in OF_THE_ENTITY
        await sender.attach()
        assert sender.knows_source
        await sender.send([copy_of(1)])
        assert [bool(each.said) for each in recording.taken] == [False, True]
