"""When an entity was used last (AccessedAt), and when it and the namespace were made.

Source: Azure's Go live tests. Of a queue or topic that is new, or was only updated, AccessedAt is
the year 1 (`TestAdminClient_CreateQueue`, `..._TopicAndSubscription`), of a subscription it is the
time when it was made (`..._ListSubscriptionRuntimeProperties`); after a send, a schedule or a
receive it is later (`..._GetQueueRuntimeProperties`). A namespace has its times
(`..._GetNamespaceProperties`).
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from bridge.testing.process import Bridge
from tests.acceptance.sdk import client_of, send, take, unique
from tests.fixtures.administration import Administer
from tests.fixtures.bridge import StartBridge

ENTITIES: dict[str, dict[str, object]] = {"orders": {}}

NEVER = datetime(1, 1, 1, tzinfo=UTC)


def accessed(admin: ServiceBusAdministrationClient, queue: str) -> datetime:
    """Return when a queue was used last."""
    found = admin.get_queue_runtime_properties(queue).accessed_at_utc
    assert found is not None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def test_a_queue_is_used_by_messages_and_not_by_its_administration(
    admin: ServiceBusAdministrationClient, bridge: Bridge
) -> None:
    """Made, read, updated: never used. A send, a peek, an open receiver: used now."""
    name = unique("q")
    queue = admin.create_queue(name)
    assert accessed(admin, name) == NEVER
    queue.lock_duration = timedelta(seconds=30)
    admin.update_queue(queue)
    assert accessed(admin, name) == NEVER

    with client_of(bridge) as client:
        before = datetime.now(UTC) - timedelta(milliseconds=1)
        send(client, name, "x")
        sent = accessed(admin, name)
        assert before <= sent <= datetime.now(UTC)
        assert accessed(admin, name) == sent
        with client.get_queue_receiver(name) as receiver:
            receiver.peek_messages()
            peeked = accessed(admin, name)
            assert peeked > sent
            take(receiver)
            time.sleep(0.01)
            assert accessed(admin, name) > peeked
    closed = accessed(admin, name)
    time.sleep(0.01)
    assert accessed(admin, name) == closed
    found = next(admin.list_queues_runtime_properties().__iter__())
    assert found.accessed_at_utc is not None


def test_a_subscription_is_used_when_it_is_made_and_a_topic_by_what_is_sent(
    admin: ServiceBusAdministrationClient, bridge: Bridge
) -> None:
    """A schedule is a use of the topic; a receive is one of the subscription."""

    def of_topic() -> Any:
        return admin.get_topic_runtime_properties(topic).accessed_at_utc

    def of_subscription() -> Any:
        return admin.get_subscription_runtime_properties(topic, "all").accessed_at_utc

    topic = unique("t")
    admin.create_topic(topic)
    assert of_topic() == NEVER
    admin.create_subscription(topic, "all")
    found = admin.get_subscription_runtime_properties(topic, "all")
    assert found.accessed_at_utc == found.created_at_utc
    assert of_topic() == NEVER

    with client_of(bridge) as client:
        with client.get_topic_sender(topic) as sender:
            later = datetime.now(UTC) + timedelta(hours=2)
            sender.schedule_messages(ServiceBusMessage("later"), later)
            scheduled = of_topic()
            assert scheduled > found.created_at_utc
            sender.send_messages(ServiceBusMessage("now"))
            assert of_topic() > scheduled
        assert of_subscription() == found.created_at_utc
        with client.get_subscription_receiver(topic, "all") as receiver:
            take(receiver)
    assert of_subscription() > found.created_at_utc


def test_a_later_entity_of_the_name_was_not_used(
    admin: ServiceBusAdministrationClient, bridge: Bridge
) -> None:
    """It begins anew."""
    name = unique("q")
    admin.create_queue(name)
    with client_of(bridge) as client:
        send(client, name, "x")
        with client.get_queue_receiver(name) as receiver:
            take(receiver)
    assert accessed(admin, name) > NEVER
    admin.delete_queue(name)
    admin.create_queue(name)
    assert accessed(admin, name) == NEVER


def test_every_bridge_tells_it_and_a_restart_keeps_it(
    start_bridge: StartBridge, administer: Administer, config: Path
) -> None:
    """The journal has sent messages' times; the times of the file's entities do not change."""
    one = start_bridge(config=config)
    admin = administer(one)
    namespace = admin.get_namespace_properties()
    began = datetime.now(UTC) - timedelta(minutes=2)
    assert began < namespace.created_at_utc <= namespace.modified_at_utc < datetime.now(UTC)
    made = admin.get_queue_runtime_properties("orders").created_at_utc
    assert began < made < datetime.now(UTC)

    two = start_bridge(config=config)
    with client_of(two) as client:
        send(client, "orders", "x")
        with client.get_queue_receiver("orders") as receiver:
            take(receiver)
    used = accessed(admin, "orders")
    assert used > made
    assert accessed(administer(two), "orders") == used
    one.stop()
    two.stop()

    again = administer(start_bridge(config=config))
    restarted = datetime.now(UTC)
    while not made < (kept := accessed(again, "orders")) <= used:
        # Until a leader knows, it counts as used: nobody takes it for one that nobody uses.
        is_new = datetime.now(UTC) < made + timedelta(seconds=20)
        assert kept > restarted - timedelta(seconds=1) or (is_new and kept == NEVER)
        assert datetime.now(UTC) < restarted + timedelta(minutes=2)
    assert again.get_queue_runtime_properties("orders").created_at_utc == made
    found = again.get_namespace_properties()
    assert found.created_at_utc == namespace.created_at_utc
    assert found.modified_at_utc == namespace.modified_at_utc


@pytest.mark.parametrize("tier", ["Standard", "Premium"])
def test_a_changed_tier_is_a_modification_of_the_namespace(
    start_bridge: StartBridge, administer: Administer, config: Path, tier: str
) -> None:
    """It is as old as before, and was modified if its tier is another one."""
    bridge = start_bridge(config=config)
    before = administer(bridge).get_namespace_properties()
    bridge.stop()

    after = administer(start_bridge("--tier", tier, config=config)).get_namespace_properties()
    assert after.created_at_utc == before.created_at_utc
    assert (after.modified_at_utc > before.modified_at_utc) is (tier == "Premium")
