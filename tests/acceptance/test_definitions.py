"""What changes in RabbitMQ's definitions of entities while clients are connected."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pika
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)

from bridge.topology.definitions import parameter_name
from tests.acceptance.sdk import client_of, native_channel, receive, send, take
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import eventually

ENTITIES: dict[str, dict[str, object]] = {"orders": {}, "invoices": {}, "full": {}}

Redefine = Callable[..., None]


@pytest.fixture
def redefine(bridge: Any, broker: Broker) -> Redefine:
    """Change fields of an entity's definition as an operator does, and say so."""

    def change(entity: str, **fields: Any) -> None:
        vhost = urllib.parse.unquote(urllib.parse.urlsplit(bridge.amqp_url).path[1:])
        path = f"/api/global-parameters/{quote(parameter_name(vhost, entity), safe='')}"
        found = broker.management("GET", path)
        broker.management("PUT", path, {**found, "value": {**found["value"], **fields}})
        with native_channel(bridge) as channel:
            channel.basic_publish("$sb/events", "", b"", pika.BasicProperties())

    return change


def is_refused(action: Callable[[], object], *kinds: type[Exception]) -> bool:
    """Whether it fails with one of these errors."""
    try:
        action()
    except kinds:
        return True
    return False


def test_status_while_clients_are_connected(bridge: Any, redefine: Redefine) -> None:
    """Senders and receivers that are open are refused, and only what the status forbids.

    A change takes effect a moment later, so what is tried meanwhile may still succeed: the open
    receiver finds nothing that it could take, and every send that is accepted is expected.
    """
    accepted: list[str] = []
    with (
        client_of(bridge) as client,
        client.get_queue_sender("orders") as sender,
        client.get_queue_receiver("orders") as receiver,
    ):
        send(client, "orders", "held")
        (held,) = receive(receiver)

        def receiving() -> list[Any]:
            return receiver.receive_messages(1, max_wait_time=0.5)

        def sending() -> None:
            body = str(len(accepted))
            sender.send_messages(ServiceBusMessage(body))
            accepted.append(body)

        redefine("orders", status="ReceiveDisabled")
        eventually(
            lambda: is_refused(receiving, MessagingEntityDisabledError), "the open receiver ends"
        )
        sending()
        with pytest.raises(MessagingEntityDisabledError):
            client.get_queue_receiver("orders").receive_messages(1, max_wait_time=1)
        redefine("orders", status="SendDisabled")
        eventually(
            lambda: is_refused(sending, MessagingEntityDisabledError), "the open sender is refused"
        )
        with client.get_queue_receiver("orders") as other:
            other.complete_message(held)
            received = take(other, len(accepted))
        redefine("orders", status="Active")
        eventually(lambda: not is_refused(sending, ServiceBusError), "sends go on")
        with client.get_queue_receiver("orders") as other:
            received += take(other)
        assert [str(message) for message in received] == accepted


def test_rules_of_an_entity_s_definition(bridge: Any, redefine: Redefine) -> None:
    """A shared access rule of a queue's definition opens that queue, and no other."""
    refused = (ServiceBusAuthenticationError, ServiceBusAuthorizationError)
    rule = {"name": "till", "primaryKey": "key-of-till", "rights": ["Send"]}
    text = (
        f"Endpoint=sb://localhost:{bridge.port};SharedAccessKeyName=till;"
        "SharedAccessKey=key-of-till;UseDevelopmentEmulator=true;"
    )

    def sending(queue: str) -> None:
        with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
            send(client, queue, "x")

    assert is_refused(lambda: sending("invoices"), *refused)
    redefine("invoices", authorizationRules=[rule])
    eventually(lambda: not is_refused(lambda: sending("invoices"), *refused), "its key is known")
    assert is_refused(lambda: sending("orders"), *refused)
    with (
        ServiceBusClient.from_connection_string(text, retry_total=0) as client,
        pytest.raises(refused),
        client.get_queue_receiver("invoices") as receiver,
    ):
        receiver.receive_messages(1, max_wait_time=1)
    redefine("invoices", authorizationRules=[])
    eventually(lambda: is_refused(lambda: sending("invoices"), *refused), "and forgotten")


def test_what_a_newer_bridge_has_added(bridge: Any, redefine: Redefine) -> None:
    """A field that this bridge does not know is named in its log, and the entity works."""
    redefine("invoices", schema=2, colour="red")

    def is_named() -> bool:
        return any("definition.unknown" in each and "'colour'" in each for each in bridge.lines)

    eventually(is_named, "it is named")
    with client_of(bridge) as client:
        send(client, "invoices", "x")
        with client.get_queue_receiver("invoices") as receiver:
            take(receiver)


def test_a_full_queue(bridge: Any, broker: Broker) -> None:
    """The client is told so in Azure's words; with room again everything accepted arrives."""
    vhost = urllib.parse.unquote(urllib.parse.urlsplit(bridge.amqp_url).path[1:])
    path = f"/api/policies/{quote(vhost, safe='')}/tight"
    definition = {"max-length": 2, "delivery-limit": 9}
    policy = {"pattern": "^full$", "definition": definition, "priority": 999, "apply-to": "queues"}
    broker.management("PUT", path, policy)
    accepted: list[str] = []
    with client_of(bridge) as client, client.get_queue_sender("full") as sender:

        def sending() -> None:
            sender.send_messages(ServiceBusMessage(str(len(accepted))))
            accepted.append(str(len(accepted)))

        eventually(lambda: is_refused(sending, ServiceBusQuotaExceededError), "it is full")
        broker.management("DELETE", path)
        with client.get_queue_receiver("full") as receiver:
            found = take(receiver, len(accepted))
        assert [str(message) for message in found] == accepted
        assert [message.sequence_number for message in found] == list(range(1, len(found) + 1))
        eventually(lambda: not is_refused(sending, ServiceBusError), "there is room", within_s=120)
