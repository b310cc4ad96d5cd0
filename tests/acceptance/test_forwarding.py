"""Auto-forwarding, by Python's real clients: definitions by the administration client."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import (
    EntityStatus,
    ServiceBusAdministrationClient,
    SqlRuleFilter,
)

from tests.acceptance.sdk import (
    client_of,
    expect_silence,
    numbers,
    receive,
    send,
    take,
    texts,
    unique,
    warnings_of,
)
from tests.fixtures.bridge import Bridge
from tests.fixtures.waiting import TOLD_S, eventually

ENTITIES: dict[str, dict[str, object]] = {"orders": {}}


@pytest.fixture(scope="module")
def client(bridge: Bridge) -> Iterator[ServiceBusClient]:
    """One client for all."""
    with client_of(bridge) as client:
        yield client


def queue(admin: ServiceBusAdministrationClient, **given: Any) -> str:
    """Make a queue of these properties; return its name."""
    name = unique("q")
    admin.create_queue(name, **given)
    return name


def taken(
    client: ServiceBusClient, name: str, count: int = 1, *, dead: bool = False
) -> list[ServiceBusReceivedMessage]:
    """Receive and complete so many messages of a queue, or of its dead-letter queue."""
    sub_queue = ServiceBusSubQueue.DEAD_LETTER if dead else None
    with client.get_queue_receiver(name, sub_queue=sub_queue) as receiver:
        return take(receiver, count)


def reason(message: ServiceBusReceivedMessage) -> tuple[str | None, str | None]:
    """Return why a message was dead-lettered."""
    return message.dead_letter_reason, message.dead_letter_error_description


def update(admin: ServiceBusAdministrationClient, name: str, **given: Any) -> None:
    """Change properties of a queue."""
    found = admin.get_queue(name)
    for key, value in given.items():
        setattr(found, key, value)
    admin.update_queue(found)


def test_messages_go_on_in_order_with_a_new_number_and_the_first_one_kept(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """Through two hops; content, properties and own TTL are as they were."""
    last = queue(admin)
    middle = queue(admin, forward_to=last, default_message_time_to_live=timedelta(hours=3))
    first = queue(admin, forward_to=middle)
    send(client, last, "before")
    taken(client, last)
    message = ServiceBusMessage(
        "0",
        application_properties={"n": 7},
        subject="s",
        message_id="m",
        session_id="a session",
        time_to_live=timedelta(hours=1),
    )
    send(client, first, message, *(str(number) for number in range(1, 40)))

    found = taken(client, last, 40)
    assert texts(found) == [str(number) for number in range(40)]
    assert numbers(found) == list(range(2, 42))
    assert [each.enqueued_sequence_number for each in found] == list(range(1, 41))
    one, other = found[:2]
    assert one.application_properties == {b"n": 7}
    assert (one.subject, one.message_id, one.session_id) == ("s", "m", "a session")
    assert one.time_to_live == timedelta(hours=1)
    assert one.expires_at_utc == one.enqueued_time_utc + timedelta(hours=1)
    assert other.time_to_live is None or other.time_to_live > timedelta(days=1000)
    assert (one.delivery_count, one.dead_letter_source) == (0, None)


def test_a_subscription_forwards_to_a_topic_whose_rules_apply(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """The number that is kept is that of the first topic; a rule sees the message as it came."""
    outer, inner = unique("t"), unique("t")
    admin.create_topic(outer)
    admin.create_topic(inner)
    for name, expression in (("reds", "color = 'red'"), ("blues", "color = 'blue'")):
        admin.create_subscription(inner, name)
        admin.delete_rule(inner, name, "$Default")
        admin.create_rule(inner, name, "r", filter=SqlRuleFilter(expression))
    admin.create_subscription(outer, "on", forward_to=inner)
    admin.create_subscription(outer, "stays")
    colors = ("red", "blue", "red")
    with client.get_topic_sender(outer) as sender:
        for number, color in enumerate(colors):
            sender.send_messages(
                ServiceBusMessage(str(number), application_properties={"color": color})
            )
    for name, expected in (("reds", [1, 3]), ("blues", [2])):
        with client.get_subscription_receiver(inner, name) as receiver:
            found = take(receiver, len(expected))
        assert [each.enqueued_sequence_number for each in found] == expected
        assert numbers(found) == list(range(1, len(expected) + 1))
    with client.get_subscription_receiver(outer, "stays") as receiver:
        assert texts(take(receiver, 3)) == ["0", "1", "2"]


def test_dead_letters_go_on_whoever_made_them(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """By the application, by expiry (RabbitMQ itself), and by failed deliveries."""
    target = queue(admin)
    settings = {"forward_dead_lettered_messages_to": target}
    by_hand = queue(admin, **settings, max_delivery_count=1)
    late = queue(
        admin,
        **settings,
        default_message_time_to_live=timedelta(seconds=1),
        dead_lettering_on_message_expiration=True,
    )
    send(client, late, "late")
    expired = taken(client, target)[0]
    assert (str(expired), expired.dead_letter_source) == ("late", late)
    assert reason(expired) == (
        "TTLExpiredException",
        "The message expired and was dead lettered.",
    )
    assert expired.time_to_live is None or expired.time_to_live > timedelta(days=1000)

    send(client, by_hand, "bad", "failed")
    with client.get_queue_receiver(by_hand) as receiver:
        first, second = receive(receiver, 2)
        receiver.dead_letter_message(first, reason="R", error_description="D")
        receiver.abandon_message(second)
    bad, failed = taken(client, target, 2)
    assert (str(bad), reason(bad), bad.dead_letter_source) == ("bad", ("R", "D"), by_hand)
    assert (bad.enqueued_sequence_number, bad.sequence_number) == (1, 2)
    assert (str(failed), reason(failed)[0]) == ("failed", "MaxDeliveryCountExceeded")
    with pytest.raises(ServiceBusError, match="auto-forwarding enabled"):
        taken(client, by_hand, dead=True)


def test_a_subscriptions_dead_letters_go_on(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """DeadLetterSource is the subscription's path."""
    target, topic = queue(admin), unique("t")
    admin.create_topic(topic)
    admin.create_subscription(topic, "Audit", forward_dead_lettered_messages_to=target)
    with client.get_topic_sender(topic) as sender:
        sender.send_messages(ServiceBusMessage("bad"))
    with client.get_subscription_receiver(topic, "Audit") as receiver:
        (message,) = receive(receiver)
        receiver.dead_letter_message(message, reason="R")
    (found,) = taken(client, target)
    assert found.dead_letter_source == f"{topic}/Subscriptions/Audit"
    assert (found.dead_letter_reason, found.enqueued_sequence_number) == ("R", 1)


def test_after_four_hops_a_message_is_a_dead_letter(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """In a chain of six queues, and in a circle of two."""
    chain = [queue(admin)]
    for _ in range(5):
        chain.append(queue(admin, forward_to=chain[-1]))
    send(client, chain[-2], "arrives")
    send(client, chain[-1], "goes too far")
    assert texts(taken(client, chain[0])) == ["arrives"]
    (dead,) = taken(client, chain[1], dead=True)
    assert (str(dead), dead.enqueued_sequence_number) == ("goes too far", 1)
    assert reason(dead) == (
        "MaxTransferHopCountExceeded",
        "The maximum number of allowed hops when forwarding between queues has been exceeded. "
        "This value is set to 4.",
    )
    one = queue(admin)
    other = queue(admin, forward_to=one)
    update(admin, one, forward_to=other)
    send(client, one, "round")
    assert texts(taken(client, one, dead=True)) == ["round"]


def test_what_the_target_does_not_take_is_a_dead_letter_of_the_source(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """Disabled, deleted, without a session id; when it is back the next message goes on."""
    target = queue(admin)
    source = queue(admin, forward_to=target)

    update(admin, target, status=EntityStatus.SEND_DISABLED)
    send(client, source, "one")
    (dead,) = taken(client, source, dead=True)
    assert dead.dead_letter_reason == "MessagingEntityDisabledException"
    assert "is currently disabled for Send operations" in dead.dead_letter_error_description
    assert (dead.dead_letter_source, dead.sequence_number) == (None, 1)
    update(admin, target, status=EntityStatus.ACTIVE)
    send(client, source, "two")
    assert texts(taken(client, target)) == ["two"]

    admin.delete_queue(target)
    assert admin.get_queue(source).forward_to.endswith(f"/{target}")
    send(client, source, "three")
    (dead,) = taken(client, source, dead=True)
    assert dead.dead_letter_reason == "MessagingEntityNotFoundException"
    assert target in dead.dead_letter_error_description
    admin.create_queue(target, requires_session=True)
    send(client, source, ServiceBusMessage("four", session_id="s"), "five")
    with client.get_queue_receiver(target, session_id="s") as receiver:
        assert texts(take(receiver)) == ["four"]
    (dead,) = taken(client, source, dead=True)
    assert (str(dead), dead.dead_letter_reason) == ("five", "Session ID is null.")


def test_dead_letters_wait_for_a_target_that_takes_none(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """In their dead-letter queue, and in order."""
    target = queue(admin)
    source = queue(admin, forward_dead_lettered_messages_to=target)
    update(admin, target, status=EntityStatus.SEND_DISABLED)
    send(client, source, "a", "b", "c")
    with client.get_queue_receiver(source) as receiver:
        for message in receive(receiver, 3):
            receiver.dead_letter_message(message)
    facts = admin.get_queue_runtime_properties(source)
    assert (facts.dead_letter_message_count, facts.transfer_dead_letter_message_count) == (3, 0)
    update(admin, target, status=EntityStatus.ACTIVE)
    assert texts(taken(client, target, 3)) == ["a", "b", "c"]
    eventually(
        lambda: admin.get_queue_runtime_properties(source).dead_letter_message_count == 0,
        "no dead letters",
    )


def test_an_update_sets_and_removes_forwarding_at_once(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """A receiver that is open is refused; what is locked stays so, and goes on when it is back."""
    target, source = queue(admin), queue(admin)
    send(client, source, "held", "waits")
    with client.get_queue_receiver(source) as receiver:
        (held,) = receive(receiver)
        began = time.monotonic()
        update(admin, source, forward_to=target)
        assert texts(taken(client, target)) == ["waits"]
        assert time.monotonic() - began < TOLD_S
        with pytest.raises(ServiceBusError):
            receiver.receive_messages(1, max_wait_time=1)
    with pytest.raises(ServiceBusError, match="auto-forwarding enabled"):
        taken(client, source)
    assert str(held) == "held"
    update(admin, source, forward_to=None)
    send(client, source, "stays")
    assert texts(taken(client, source)) == ["stays"]
    with client.get_queue_receiver(target) as receiver:
        expect_silence(receiver)


def test_runtime_properties_count_what_waits_to_go_on(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """A source that receives nothing forwards nothing."""
    target, source = queue(admin), queue(admin)
    send(client, source, "a", "b")
    update(admin, source, forward_to=target, status=EntityStatus.RECEIVE_DISABLED)
    facts = admin.get_queue_runtime_properties(source)
    assert (facts.transfer_message_count, facts.active_message_count) == (2, 0)
    assert (facts.total_message_count, facts.transfer_dead_letter_message_count) == (2, 0)
    update(admin, source, status=EntityStatus.ACTIVE)
    assert texts(taken(client, target, 2)) == ["a", "b"]
    eventually(
        lambda: admin.get_queue_runtime_properties(source).transfer_message_count == 0,
        "nothing waits",
    )


def test_a_forwarded_message_of_a_known_id_is_a_duplicate(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    """The target detects duplicates, whichever way they come."""
    target = queue(admin, requires_duplicate_detection=True)
    sources = [queue(admin, forward_to=target) for _ in range(2)]
    send(client, target, ServiceBusMessage("direct", message_id="x"))
    for source in sources:
        send(client, source, *(ServiceBusMessage(each, message_id=each) for each in "xy"))
    with client.get_queue_receiver(target) as receiver:
        assert sorted(texts(take(receiver, 2))) == ["direct", "y"]
        expect_silence(receiver)


def test_definitions_that_cannot_be_are_refused(
    admin: ServiceBusAdministrationClient, bridge: Bridge, admin_port: int
) -> None:
    """A target that is not there; names and URLs mean the same."""
    target = queue(admin)
    for field in ("forward_to", "forward_dead_lettered_messages_to"):
        with pytest.raises(HttpResponseError, match="entity does not exist"):
            queue(admin, **{field: "nobody"})
        for given in (target, f"sb://localhost:{admin_port}/{target}", f"sb://elsewhere/{target}/"):
            name = queue(admin, **{field: given})
            assert getattr(admin.get_queue(name), field) == f"sb://localhost:{admin_port}/{target}"
        name = queue(admin, **{field: f"https://elsewhere/{target}"})
        assert getattr(admin.get_queue(name), field) == f"https://localhost:{admin_port}/{target}"
    source = queue(admin)
    with pytest.raises(HttpResponseError, match="SubCode=40400"):
        update(admin, source, forward_to="nobody")
    admin.delete_queue(target)
    with pytest.raises(ResourceNotFoundError):
        admin.get_queue(target)


def test_an_entity_with_sessions_is_made_with_a_target_and_keeps_its_messages(
    admin: ServiceBusAdministrationClient, client: ServiceBusClient, bridge: Bridge
) -> None:
    """Azure's Python live tests make such queues, and read both values back; its pages know none.

    (`test_mgmt_queue_create_with_queue_description`.) What becomes of the messages there is not
    known: here they stay, and health says so. Dead letters are forwarded.
    """
    target, topic = queue(admin), unique("topic")
    source = queue(
        admin,
        requires_session=True,
        forward_to=target,
        forward_dead_lettered_messages_to=target,
    )
    admin.create_topic(topic)
    admin.create_subscription(topic, "all", requires_session=True, forward_to=target)
    for found in admin.get_queue(source), admin.get_subscription(topic, "all"):
        assert found.requires_session
        assert found.forward_to.endswith(f"/{target}")
    warned = [each for each in warnings_of(bridge) if "requires sessions" in each]
    for path in source, f"{topic}/Subscriptions/all":
        (warning,) = (each for each in warned if f"'{path}'" in each)
        assert warning.startswith(f"ForwardTo of '{path}' does not hold. ")
        assert f"not forwarded to '{target}'" in warning

    send(client, source, *(ServiceBusMessage(each, session_id="s") for each in ("stays", "dead")))
    with client.get_topic_sender(topic) as sender:
        sender.send_messages(ServiceBusMessage("stays", session_id="s"))
    with client.get_queue_receiver(source, session_id="s") as receiver:
        stays, dead = receive(receiver, 2)
        receiver.complete_message(stays)
        receiver.dead_letter_message(dead)
    with client.get_subscription_receiver(topic, "all", session_id="s") as receiver:
        assert texts(take(receiver)) == ["stays"]
    with client.get_queue_receiver(target) as receiver:
        assert texts(take(receiver)) == ["dead"]
        expect_silence(receiver)
    update(admin, source, forward_to=None)
    admin.delete_topic(topic)
    assert not [each for each in warnings_of(bridge) if f"'{source}'" in each or topic in each]
