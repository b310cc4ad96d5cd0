"""What the copies of a migration send, and where the messages of an entity are."""

from __future__ import annotations

import pytest

from bridge.commands.migration.connection import run_name
from bridge.commands.migration.copying import imported, places_of
from bridge.commands.migration.holding import check_free
from bridge.commands.target import NamespaceLogin
from bridge.model import entity as model
from bridge.model.availability import check_run
from bridge.model.name import parse_path
from bridge.operations.migration.copy_effects import CopyPlace, CopyStopped
from bridge.operations.migration.run_mark import mark_name
from bridge.operations.migration.state_counts import StateCounts
from bridge.remote.address import RemoteAddress
from bridge.remote.credentials import SharedKey
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.scalars import Int, Long, Timestamp

ANNOTATIONS = {
    "x-opt-sequence-number": Long(7),
    "x-opt-enqueued-time": Timestamp(1_000),
    "x-opt-message-state": Int(1),
    "x-opt-locked-until": Timestamp(2_000),
}
PEEKED = RemoteMessage.of(data=b"order", annotations=ANNOTATIONS)


def test_a_queue_has_its_messages_and_dead_letters_in_one_series() -> None:
    """Dead letters are in no sessions."""
    one, dead = places_of(model.Queue(name="q", requires_session=True), lambda path: True)
    assert (one.path, one.is_dead, one.has_sessions) == ("q", False, True)
    assert (dead.path, dead.is_dead, dead.has_sessions) == ("q/$DeadLetterQueue", True, False)
    assert one.series == dead.series


def test_each_subscription_of_a_topic_has_a_series_of_its_own() -> None:
    """Beside the topic's scheduled messages; what is not chosen is left out."""
    subscriptions = tuple(model.Subscription(topic="t", name=name) for name in "abc")
    topic = model.Topic(name="t", subscriptions=subscriptions)
    places = places_of(topic, lambda path: not path.endswith("b"))
    assert [each.path for each in places] == [
        "t",
        "t/Subscriptions/a",
        "t/Subscriptions/a/$DeadLetterQueue",
        "t/Subscriptions/c",
        "t/Subscriptions/c/$DeadLetterQueue",
    ]
    assert [each.series for each in places] == [0, 1, 1, 3, 3]
    assert [each.is_ordered_by_topic for each in places] == [False, True, True, True, True]


@pytest.mark.parametrize(
    ("place", "added"),
    [
        (CopyPlace(path="q"), {}),
        (CopyPlace(path="q/$DeadLetterQueue", is_dead=True), {"com.busbridge:dead-letter": True}),
        (
            CopyPlace(
                path="t/Subscriptions/a/$DeadLetterQueue", is_dead=True, is_ordered_by_topic=True
            ),
            {"com.busbridge:dead-letter": True, "com.busbridge:subscription": "a"},
        ),
    ],
)
def test_what_is_imported_says_where_it_was_and_no_lock(
    place: CopyPlace, added: dict[str, object]
) -> None:
    """It has the same bytes each time."""
    made = imported(place, PEEKED)
    kept = {name: ANNOTATIONS[name] for name in list(ANNOTATIONS)[:3]}
    assert made.annotation_values == kept | added
    assert made.body == PEEKED.body
    assert made == imported(place, RemoteMessage.read(PEEKED.encode()))


def test_what_has_nothing_to_say_is_imported_as_it_came() -> None:
    """A value in a longer form than it needs keeps that."""
    long_form = b"\x00Sr\xd1\x00\x00\x00\x0c\x00\x00\x00\x02\xa3\x01a\x71\x00\x00\x00\x05"
    message = RemoteMessage(annotations=long_form)
    assert message.annotation_values == {"a": 5}
    assert imported(CopyPlace(path="q"), message) is message
    dead = imported(CopyPlace(path="q", is_dead=True), message)
    assert long_form[12:] in dead.annotations
    assert dead.annotation_values == {"a": 5, "com.busbridge:dead-letter": True}


def test_a_run_has_the_name_of_its_source_and_its_mark_that_of_its_command() -> None:
    """Whoever begins it again finds both."""

    def login(namespace: str) -> NamespaceLogin:
        text = f"Endpoint=sb://{namespace}.servicebus.windows.net/;SharedAccessKeyName=a"
        address = RemoteAddress.of(f"{text};SharedAccessKey=YQ==")
        return NamespaceLogin(namespace, address, SharedKey("a", "YQ=="))

    one, other = run_name(login("one")), run_name(login("other"))
    assert one == run_name(login("ONE")) != other
    assert check_run(one) == one
    mark = mark_name(one, ["b", "a"])
    assert mark == mark_name(one, ["A", "b"]) != mark_name(one, ["a"])
    assert mark_name(one, []) == mark_name(one, ["*"]) != mark
    assert mark != mark_name(other, ["a", "b"])
    assert parse_path(mark).entity == mark


@pytest.mark.parametrize("is_held", [True, False])
async def test_an_entity_of_the_target_has_no_messages_or_is_held_by_the_run(is_held: bool) -> None:
    """A topic has those of its subscriptions, too; what is empty is not asked about."""
    asked = []

    async def held() -> bool:
        asked.append(True)
        return is_held

    counted = {"t/Subscriptions/a": StateCounts(counts={"dead_letter": 2})}
    topic = model.Topic(name="t", subscriptions=(model.Subscription(topic="t", name="a"),))
    places = places_of(topic, lambda path: True)
    await check_free(places, lambda path: StateCounts(), held)
    assert not asked
    if is_held:
        await check_free(places, lambda path: counted.get(path, StateCounts()), held)
        return
    with pytest.raises(CopyStopped, match="t/Subscriptions/a: the target has 2 messages, and no"):
        await check_free(places, lambda path: counted.get(path, StateCounts()), held)
