"""Updates of live entities: who is connected, at any bridge, works by the new definition.

The update is made through one bridge, the clients are connected to another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import MessagingEntityDisabledError, MessagingEntityNotFoundError
from azure.servicebus.management import (
    EntityStatus,
    ServiceBusAdministrationClient,
    SqlRuleFilter,
)

from tests.acceptance.sdk import client_of, expect_silence, receive, take, unique
from tests.fixtures.bridge import Bridge, bridge_of
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import eventually

ENTITIES: dict[str, dict[str, object]] = {}

LOCK_MAX_S = 75.0
"""Longer than the longest lock of these tests, a minute."""


@pytest.fixture(scope="module")
def client(
    bridge: Bridge, broker: Broker, module_vhost: str, config: Path
) -> Iterator[ServiceBusClient]:
    """A client of another bridge than the one that is administered."""
    other = bridge_of(broker, module_vhost, config=config)
    other.start()
    with client_of(other) as made:
        yield made
    other.stop()


@pytest.fixture(scope="module", params=["queue", "subscription"])
def shared(
    request: pytest.FixtureRequest,
    admin: ServiceBusAdministrationClient,
    client: ServiceBusClient,
) -> Iterator[Place]:
    """A queue, and a subscription of a topic."""
    made = Place(admin, client, is_queue=request.param == "queue")
    yield made
    made.delete()


@pytest.fixture
def place(shared: Place) -> Iterator[Place]:
    """The same, empty again behind each test."""
    yield shared
    shared.empty()


class Place:
    """A queue, or a subscription of a topic, with the verbs that both have."""

    def __init__(
        self,
        admin: ServiceBusAdministrationClient,
        client: ServiceBusClient,
        *,
        is_queue: bool,
        **given: Any,
    ) -> None:
        self.admin, self.client, self.is_queue = admin, client, is_queue
        self.name = unique("q" if is_queue else "t")
        if is_queue:
            admin.create_queue(self.name, **given)
        else:
            admin.create_topic(self.name)
            admin.create_subscription(self.name, "audit", **given)
        eventually(self._is_known, "the other bridge knows it")

    def _is_known(self) -> bool:
        try:
            self._sending = self.sender().__enter__()
        except MessagingEntityNotFoundError:
            return False
        return True

    def delete(self) -> None:
        """Delete it."""
        self._sending.close()
        (self.admin.delete_queue if self.is_queue else self.admin.delete_topic)(self.name)

    def empty(self) -> None:
        """Take all that waits."""
        for sub_queue in (None, ServiceBusSubQueue.DEAD_LETTER):
            with self.receiver(sub_queue=sub_queue, receive_mode="receiveanddelete") as receiver:
                while receiver.receive_messages(100, max_wait_time=0.3):
                    pass

    def update(self, **changes: Any) -> None:
        """Change it, and nothing else of it."""
        there = self.get()
        for name, value in changes.items():
            setattr(there, name, value)
        if self.is_queue:
            self.admin.update_queue(there)
        else:
            self.admin.update_subscription(self.name, there)

    def get(self) -> Any:
        """Read it."""
        if self.is_queue:
            return self.admin.get_queue(self.name)
        return self.admin.get_subscription(self.name, "audit")

    def counts(self) -> Any:
        """Count its messages."""
        if self.is_queue:
            return self.admin.get_queue_runtime_properties(self.name)
        return self.admin.get_subscription_runtime_properties(self.name, "audit")

    def receiver(self, **options: Any) -> Any:
        """Receive from it."""
        if self.is_queue:
            return self.client.get_queue_receiver(self.name, **options)
        return self.client.get_subscription_receiver(self.name, "audit", **options)

    def sender(self) -> Any:
        """Send to it."""
        if self.is_queue:
            return self.client.get_queue_sender(self.name)
        return self.client.get_topic_sender(self.name)

    def send(self, *bodies: str, **fields: Any) -> None:
        """Send a message of each body."""
        for body in bodies:
            self._sending.send_messages(ServiceBusMessage(body, **fields))


def left_s(message: Any) -> float:
    """Return how long a message is locked yet."""
    return float((message.locked_until_utc - datetime.now(UTC)).total_seconds())


def test_a_changed_lock_duration_is_that_of_the_next_lock(place: Place) -> None:
    """Of a receiver that is connected; a lock that is held is as it was given, and is kept."""
    with place.receiver() as receiver:
        place.send("first", "second", "third")
        (first,) = receive(receiver)
        assert left_s(first) > 50
        place.update(lock_duration=timedelta(seconds=5))

        def is_short() -> bool:
            (message,) = receive(receiver)
            is_new = left_s(message) < 6
            (receiver.complete_message if is_new else receiver.abandon_message)(message)
            return is_new

        eventually(is_short, "the next lock is short")
        receiver.complete_message(first)
        take(receiver)


def test_a_changed_delivery_count_decides_on_the_next_failure(place: Place) -> None:
    """A lower one dead-letters, a higher one does not; what waits behind it is not lost."""
    place.update(max_delivery_count=1)
    with place.receiver() as receiver:
        place.send("fails", "waits")

        def is_dead() -> bool:
            receiver.abandon_message(receive(receiver)[0])
            return bool(place.counts().dead_letter_message_count)

        eventually(is_dead, "it is dead-lettered")
        place.update(max_delivery_count=20)
        dead = place.counts().dead_letter_message_count
        with place.receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER) as letters:
            left = {"fails", "waits"} - {str(each) for each in take(letters, dead)}
        if not left:  # the second failed before the count was known
            place.send("waits")
        for _ in range(12):
            receiver.abandon_message(receive(receiver)[0])
        assert str(take(receiver)[0]) == "waits"


def test_a_changed_time_to_live_is_that_of_later_messages(place: Place) -> None:
    """The messages that are there already keep the time to live that they were sent with."""
    place.send("before")
    place.update(default_message_time_to_live=timedelta(hours=3))
    with place.receiver() as receiver:
        (before,) = take(receiver)
        assert before.time_to_live is None or not place.is_queue

        def is_short() -> bool:
            place.send("after")
            return bool(take(receiver)[0].time_to_live == timedelta(hours=3))

        eventually(is_short, "later ones have the new one")
    place.update(default_message_time_to_live=timedelta(days=100))


def test_dead_lettering_on_expiration_is_switched(place: Place) -> None:
    """On: what expires is a dead letter. Off: it is gone."""
    for is_on in (True, False):
        place.update(dead_lettering_on_message_expiration=is_on)

        def is_so(is_on: bool = is_on) -> bool:
            before = place.counts().dead_letter_message_count
            place.send("expires", time_to_live=timedelta(milliseconds=100))
            eventually(lambda: place.counts().active_message_count == 0, "it expires")
            return (place.counts().dead_letter_message_count > before) is is_on

        eventually(is_so, f"dead-lettering is {is_on}")


@pytest.mark.parametrize("shared", ["queue"], indirect=True)
def test_a_disabled_entity_ends_its_receivers(place: Place) -> None:
    """In Azure's words; what they hold stays theirs; active again, nothing is lost."""
    place.update(lock_duration=timedelta(seconds=5))
    place.send("first", "second")
    with place.receiver() as holding, place.receiver() as waiting:
        receive(holding)
        place.update(status=EntityStatus.RECEIVE_DISABLED)
        for each in (waiting, holding):
            eventually(lambda each=each: _is_disabled(each), "it is refused")
    place.send("third")
    place.update(status=EntityStatus.ACTIVE)
    eventually(lambda: _is_open(place), "it is known")
    with place.receiver() as receiver:  # what is locked comes when its lock ends
        messages = receive(receiver, 3, within_s=LOCK_MAX_S)
        assert {str(each) for each in messages} == {"first", "second", "third"}
        for each in messages:
            receiver.complete_message(each)


@pytest.mark.parametrize("shared", ["subscription"], indirect=True)
def test_a_disabled_subscription_goes_on_collecting(place: Place) -> None:
    """Once active again, it has the messages that its topic received meanwhile."""
    place.update(status=EntityStatus.DISABLED)
    eventually(lambda: not _is_open(place), "its receivers are refused")
    place.send("meanwhile")
    place.update(status=EntityStatus.ACTIVE)
    eventually(lambda: _is_open(place), "it is known")
    with place.receiver() as receiver:
        assert [str(each) for each in take(receiver)] == ["meanwhile"]


def _is_disabled(receiver: Any) -> bool:
    """Whether a receiver is refused; what it gets before it keeps: given back it might come again
    until its deliveries are used up.
    """
    try:
        receiver.receive_messages(1, max_wait_time=0.3)
    except MessagingEntityDisabledError:
        return True
    return False


def _is_open(place: Place) -> bool:
    try:
        with place.receiver():
            return True
    except MessagingEntityDisabledError:
        return False


@pytest.mark.parametrize("shared", ["subscription"], indirect=True)
def test_a_disabled_entity_refuses_its_senders(place: Place) -> None:
    """Connected ones, too: sent, scheduled; active again they go on."""
    admin = place.admin
    status = EntityStatus.SEND_DISABLED if place.is_queue else EntityStatus.DISABLED
    get = admin.get_queue if place.is_queue else admin.get_topic
    update: Callable[[Any], None] = admin.update_queue if place.is_queue else admin.update_topic
    with place.sender() as sender:
        sender.send_messages(ServiceBusMessage("before"))
        there: Any = get(place.name)
        there.status = status
        update(there)
        eventually(lambda: not _can_send(sender), "it is refused")
        with pytest.raises(MessagingEntityDisabledError):
            sender.schedule_messages(
                ServiceBusMessage("later"), datetime.now(UTC) + timedelta(minutes=1)
            )
        there.status = EntityStatus.ACTIVE
        update(there)
        eventually(lambda: _can_send(sender), "it is taken again")


def _can_send(sender: Any) -> bool:
    try:
        sender.send_messages(ServiceBusMessage("x"))
    except MessagingEntityDisabledError:
        return False
    return True


def test_dead_lettering_of_failed_filters_is_switched(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """On: a message whose filter fails is a dead letter. Off: it is gone, in that subscription."""
    place = Place(admin, client, is_queue=False)
    admin.delete_rule(place.name, "audit", "$Default")
    admin.create_rule(place.name, "audit", "fails", filter=SqlRuleFilter("sys.Nothing = 1"))
    place.update(dead_lettering_on_filter_evaluation_exceptions=False)
    counted = [0]

    def is_quiet() -> bool:
        before = place.counts().dead_letter_message_count
        place.send("x")
        with place.receiver() as receiver:
            expect_silence(receiver, for_s=0.3)
        counted[0] = place.counts().dead_letter_message_count
        return bool(counted[0] == before)

    eventually(is_quiet, "it is dropped")
    place.update(dead_lettering_on_filter_evaluation_exceptions=True)

    def is_dead() -> bool:
        place.send("x")
        return bool(place.counts().dead_letter_message_count > counted[0])

    eventually(is_dead, "it is dead-lettered")
    place.delete()


def test_sessions_work_by_the_new_definition(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """Lock duration, delivery count, and the status that ends a receiver; nothing is lost."""
    place = Place(admin, client, is_queue=True, requires_session=True)
    place.send("first", session_id="s")
    with place.receiver(session_id="s") as receiver:
        place.update(lock_duration=timedelta(seconds=9), max_delivery_count=1)

        def is_short() -> bool:
            until = receiver.session.renew_lock()
            return bool((until - datetime.now(UTC)).total_seconds() < 10)

        eventually(is_short, "the renewed lock is short")
        receiver.abandon_message(receive(receiver)[0])
        eventually(lambda: place.counts().dead_letter_message_count == 1, "it is dead")
        place.update(status=EntityStatus.DISABLED)
        eventually(lambda: _is_disabled(receiver), "it is refused")
    place.update(status=EntityStatus.ACTIVE)
    eventually(lambda: _sends(place), "sends are taken again")
    with place.receiver(session_id="s") as receiver:
        assert [str(each) for each in take(receiver)] == ["second"]
    place.delete()


def _sends(place: Place) -> bool:
    try:
        place.send("second", session_id="s")
    except MessagingEntityDisabledError:
        return False
    return True


def test_what_is_fixed_at_creation_is_refused_of_each_kind(
    admin: ServiceBusAdministrationClient,
) -> None:
    """400, sub-code 40000, the property by name; nothing else of the update is done."""
    name = unique("fixed")
    admin.create_topic(name)
    admin.create_subscription(name, "audit")
    topic, subscription = admin.get_topic(name), admin.get_subscription(name, "audit")
    for field, words in (
        ("requires_duplicate_detection", "RequiresDuplicateDetection property of an existing Top"),
        ("enable_partitioning", "Partitioning cannot be changed for Topic"),
    ):
        changed = admin.get_topic(name)
        setattr(changed, field, not getattr(topic, field))
        changed.user_metadata = "changed"
        with pytest.raises(HttpResponseError, match=words) as caught:
            admin.update_topic(changed)
        assert caught.value.status_code == 400
    subscription.requires_session = True
    with pytest.raises(HttpResponseError, match="RequiresSession property of an existing Subscr"):
        admin.update_subscription(name, subscription)
    assert not admin.get_topic(name).user_metadata
    admin.delete_topic(name)


def test_user_metadata_and_size_are_changed(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """And what waits is there afterwards."""
    place = Place(admin, client, is_queue=True)
    place.send("kept")
    place.update(user_metadata="team=billing", max_size_in_megabytes=2048)
    found = place.get()
    assert (found.user_metadata, found.max_size_in_megabytes) == ("team=billing", 2048)
    with place.receiver() as receiver:
        assert str(take(receiver)[0]) == "kept"
    place.delete()
