"""Definitions live in RabbitMQ, and counts do, whichever bridge is asked."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.management import (
    AuthorizationRule,
    CorrelationRuleFilter,
    ServiceBusAdministrationClient,
)

from bridge.topology.definitions import parameter_name
from tests.acceptance.sdk import client_of, receive, send, take
from tests.fixtures.administration import Administer
from tests.fixtures.bridge import Bridge, StartBridge, bridge_of
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.long

ENTITIES: dict[str, dict[str, object]] = {"orders": {}}

LEAVES_SOCKETS = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
"""The client of a bridge that is killed forgets its socket."""

COUNTS = 4, 1, 2, 8
"""Active (one of them locked), dead-lettered, scheduled, and all with the deferred one."""

POLL_S = 15.0
"""A change in RabbitMQ itself is known by then; one through a bridge is told to the others."""


def test_a_change_is_known_to_every_bridge(
    start_bridge: StartBridge, administer: Administer, broker: Broker, vhost: str
) -> None:
    """Sooner than by a poll through a bridge, by a poll when an operator changes RabbitMQ."""
    one, other = start_bridge(), start_bridge()
    here, there = administer(one), administer(other)

    here.create_queue("new", max_delivery_count=3)
    began = time.monotonic()
    eventually(lambda: _deliveries(there, "new") == 3, "it is known there")
    queue = here.get_queue("new")
    queue.max_delivery_count = 4
    here.update_queue(queue)
    eventually(lambda: _deliveries(there, "new") == 4, "the change is known there")
    with client_of(other) as client:
        send(client, "new", "hello")
        with client.get_queue_receiver("new") as receiver:
            assert str(take(receiver)[0]) == "hello"
    here.delete_queue("new")
    eventually(lambda: _deliveries(there, "new") is None, "it is gone there")
    assert time.monotonic() - began < 3 * POLL_S, "three changes waited for polls"

    # As an operator with rabbitmqctl would: nobody is told.
    path = f"/api/global-parameters/{quote(parameter_name(vhost, 'orders'), safe='')}"
    found = broker.management("GET", path)
    changed = {**found["value"], "maxDeliveryCount": 7}
    broker.management("PUT", path, {**found, "value": changed})
    for admin in (here, there):
        eventually(
            lambda admin=admin: _deliveries(admin, "orders") == 7,
            "the operator's change is known",
        )


def _deliveries(admin: ServiceBusAdministrationClient, queue: str) -> int | None:
    try:
        return int(admin.get_queue(queue).max_delivery_count or 0)
    except ResourceNotFoundError:
        return None


@LEAVES_SOCKETS
def test_counts_are_true_at_every_bridge_and_after_a_kill(
    start_bridge: StartBridge, administer: Administer
) -> None:
    """Each counts the messages that the other holds; after a kill they are in the queue again."""
    one, other = start_bridge(), start_bridge()
    survivor = administer(other)
    _use_and_kill(one, [administer(one), survivor])
    gc.collect()  # while the sockets that are left behind are nothing to tell
    seen: list[tuple[Any, ...]] = []

    def are_true() -> bool:
        seen.append(_counts(survivor))
        return seen[-1] == COUNTS

    eventually(are_true, "they are true without it", within_s=120)
    assert min(count for counts in seen for count in counts) >= 0


def _use_and_kill(bridge: Bridge, asked: Sequence[ServiceBusAdministrationClient]) -> None:
    """Have messages in every state, one of them locked, and kill the bridge that holds it."""
    with client_of(bridge) as client, client.get_queue_sender("orders") as sender:
        sender.send_messages([ServiceBusMessage(str(number)) for number in range(6)])
        later = datetime.now(UTC) + timedelta(minutes=10)
        sender.schedule_messages([ServiceBusMessage("later")] * 2, later)
        with client.get_queue_receiver("orders") as receiver:
            dead, deferred, _ = receive(receiver, 3)
            receiver.dead_letter_message(dead)
            receiver.defer_message(deferred)
            for admin in asked:
                eventually(lambda admin=admin: _counts(admin) == COUNTS, "they are true")
            bridge.kill()


def _counts(admin: ServiceBusAdministrationClient) -> tuple[Any, ...]:
    found = admin.get_queue_runtime_properties("orders")
    return (
        found.active_message_count,
        found.dead_letter_message_count,
        found.scheduled_message_count,
        found.total_message_count,
    )


def test_a_namespace_is_exported_and_imported_whole(
    start_bridge: StartBridge,
    start_broker: Callable[..., Broker],
    administer: Administer,
    broker: Broker,
    vhost: str,
) -> None:
    """RabbitMQ's own export of one broker, imported into an empty one: every entity is there."""
    here = administer(start_bridge())
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule", claim_type="SharedAccessKey", claim_value="None",
        rights=["Listen"], key_name="reader", primary_key="one", secondary_key="two",
    )  # fmt: skip
    here.create_queue("guarded", lock_duration=timedelta(seconds=7), authorization_rules=[rule])
    here.create_topic("events", user_metadata="kept")
    here.create_subscription("events", "red", max_delivery_count=3)
    red = CorrelationRuleFilter(properties={"color": "red"})
    here.create_rule("events", "red", "red", filter=red)
    here.delete_rule("events", "red", "$Default")

    empty = start_broker()
    empty.management("POST", "/api/definitions", _exported(broker, vhost))
    bridge = bridge_of(empty, vhost)
    bridge.start()
    try:
        there = administer(bridge)
        for each in (here, there):
            assert [queue.name for queue in each.list_queues()] == ["guarded", "orders"]
        assert _described(there) == _described(here)
        with client_of(bridge) as client, client.get_topic_sender("events") as sender:
            for color in ("blue", "red"):
                sender.send_messages(
                    ServiceBusMessage(color, application_properties={"color": color})
                )
            with client.get_subscription_receiver("events", "red") as receiver:
                assert str(take(receiver)[0]) == "red"
    finally:
        bridge.stop()


def _exported(broker: Broker, vhost: str) -> dict[str, Any]:
    """What RabbitMQ exports, but for the virtual hosts and users of other tests.

    RabbitMQ 4 leaves exclusive queues out, but not their bindings, and refuses these on import.
    """
    whole = broker.management("GET", "/api/definitions")
    of_vhost = ("permissions", "policies", "parameters", "queues", "exchanges", "bindings")
    ours = {kind: [row for row in whole[kind] if row["vhost"] == vhost] for kind in of_vhost}
    kept = {row["name"] for row in (*ours["queues"], *ours["exchanges"])}
    return {
        **ours,
        "bindings": [row for row in ours["bindings"] if row["destination"] in kept],
        "vhosts": [row for row in whole["vhosts"] if row["name"] == vhost],
        "users": whole["users"],
        "global_parameters": [
            row
            for row in whole["global_parameters"]
            if row["name"].startswith("busbridge") and vhost in row["name"]
        ],
        "rabbit_version": whole["rabbit_version"],
    }


def _described(admin: ServiceBusAdministrationClient) -> list[Any]:
    """All that is known of the entities, but for where their URLs begin."""
    queue, topic = admin.get_queue("guarded"), admin.get_topic("events")
    subscription = admin.get_subscription("events", "red")
    rules = [
        (rule.name, type(rule.filter), vars(rule.filter))
        for rule in admin.list_rules("events", "red")
    ]
    keys = [(rule.key_name, rule.primary_key) for rule in queue.authorization_rules]
    return [
        (queue.lock_duration, keys),
        (topic.name, topic.user_metadata),
        (subscription.name, subscription.max_delivery_count),
        rules,
    ]
