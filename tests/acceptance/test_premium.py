"""The sizes of Premium's messages, and what of them RabbitMQ takes.

Source of the limits and the words: Azure's Python live tests and their recorded answers
(`test_mgmt_queue_premium_create_with_queue_description`, and that of topics).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessageSizeExceededError
from azure.servicebus.management import ServiceBusAdministrationClient

from bridge.client import ServiceBusClient
from bridge.model.tiers import ENVELOPE_BYTES_MAX
from bridge.testing.process import Bridge
from tests.acceptance.rest import Rest
from tests.acceptance.sdk import client_of, expect_silence, take, unique, warnings_of
from tests.fixtures.administration import Administer
from tests.fixtures.bridge import StartBridge, bridge_of
from tests.fixtures.broker import Broker

KIB = 1_024
SMALL_RABBITMQ_BYTES = 3_000_000
SENDABLE_BYTES = SMALL_RABBITMQ_BYTES - ENVELOPE_BYTES_MAX

ENTITIES: dict[str, dict[str, object]] = {"orders": {}}


@pytest.fixture(scope="module")
def bridge(broker: Broker, module_vhost: str, config: Path) -> Iterator[Bridge]:
    """A bridge of a Premium namespace."""
    shared = bridge_of(broker, module_vhost, "--tier", "Premium", config=config)
    shared.start()
    yield shared
    shared.stop()


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_the_limit_is_1024_kb_and_may_be_set_up_to_102400(
    admin: ServiceBusAdministrationClient, kind: str
) -> None:
    """It is read back as given; outside of its range it is refused in Azure's words."""
    create, read, update = (
        getattr(admin, f"{verb}_{kind}") for verb in ("create", "get", "update")
    )
    given, default, refused = (unique(kind) for _ in range(3))
    create(given, max_message_size_in_kilobytes=12_345)
    assert read(given).max_message_size_in_kilobytes == 12_345
    create(default)
    found = read(default)
    assert found.max_message_size_in_kilobytes == 1_024
    found.max_message_size_in_kilobytes = 54_321
    update(found)
    assert read(default).max_message_size_in_kilobytes == 54_321

    for size_kb in (1_023, 102_401):
        with pytest.raises(HttpResponseError) as caught:
            create(refused, max_message_size_in_kilobytes=size_kb)
        assert caught.value.status_code == 400
        assert (
            "SubCode=40000. The property value for 'MaxMessageSizeInKilobytes' must be between "
            "1024 and 102400 when the namespace 'sbemulatorns' is using 'Premium' tier."
        ) in caught.value.message
        assert f"Actual value was {size_kb}." in caught.value.message
    with pytest.raises(ResourceNotFoundError):
        read(refused)
    create(refused, max_message_size_in_kilobytes=102_400)
    assert read(refused).max_message_size_in_kilobytes == 102_400


def limit_of(client: Any, queue: str) -> int:
    """Return what a sender's link says; the SDK's batches have limits of their own beside it."""
    with client.get_queue_sender(queue) as sender:
        batch_bytes = sender.create_message_batch().max_size_in_bytes
        return getattr(sender, "_max_message_size_on_link", batch_bytes)


def test_a_message_of_the_limit_is_sent_and_scheduled(
    bridge: Bridge, admin: ServiceBusAdministrationClient
) -> None:
    """The link says the entity's limit; one byte more is refused by name, scheduled or not."""
    large = unique("large")
    admin.create_queue(large, max_message_size_in_kilobytes=5_000)
    with client_of(bridge, socket_timeout=60) as client:
        assert limit_of(client, "orders") == 1_024 * KIB
        assert limit_of(client, large) == 5_000 * KIB
        for queue, size_bytes in ("orders", 1_024 * KIB), (large, 5_000 * KIB):
            body = b"x" * (size_bytes - 300)
            soon = datetime.now(UTC) + timedelta(seconds=2)
            with client.get_queue_sender(queue) as sender:
                sender.send_messages(ServiceBusMessage(body))
                (number,) = sender.schedule_messages(ServiceBusMessage(body), soon)
                assert number > 0
                with pytest.raises(MessageSizeExceededError):
                    sender.send_messages(ServiceBusMessage(body + b"x" * 300))
                with pytest.raises(MessageSizeExceededError):
                    sender.schedule_messages(ServiceBusMessage(body + b"x" * 300), soon)
            with client.get_queue_receiver(queue) as receiver:
                for message in take(receiver, 2):
                    assert b"".join(message.body) == body
                expect_silence(receiver)


@pytest.mark.long
def test_a_message_of_100_mb(bridge: Bridge, admin: ServiceBusAdministrationClient) -> None:
    """The private RabbitMQ, and that of the compose file, take the largest message of Premium."""
    largest = unique("largest")
    admin.create_queue(largest, max_message_size_in_kilobytes=102_400, max_size_in_megabytes=1_024)
    body = b"x" * (102_400 * KIB - 1_000)
    # The SDK gives up when nothing is taken for 0.2 s, and here nothing sends again.
    with client_of(bridge, socket_timeout=60) as client:
        assert limit_of(client, largest) == 102_400 * KIB
        with client.get_queue_sender(largest) as sender:
            sender.send_messages(ServiceBusMessage(body))
        with client.get_queue_receiver(largest) as receiver:
            (message,) = take(receiver)
            assert b"".join(message.body) == body


@pytest.mark.long
def test_the_link_says_no_more_than_rabbitmq_takes(
    start_broker: Callable[..., Broker],
    start_bridge: StartBridge,
    administer: Administer,
    config: Path,
) -> None:
    """A RabbitMQ with a small max_message_size: its limit is told to each kind of client.

    Without that the largest messages would end the bridge's channel, again with each try.
    """
    broker = start_broker(configuration={"max_message_size": str(SMALL_RABBITMQ_BYTES)})
    bridge = start_bridge("--tier", "Premium", config=config, on=broker, vhost="/")
    admin = administer(bridge)
    assert warnings_of(bridge) == []
    admin.create_queue("large", max_message_size_in_kilobytes=20_000)
    (warning,) = warnings_of(bridge)
    assert warning.startswith(
        "MaxMessageSizeInKilobytes of 'large' does not hold. Messages of 20,000"
    )
    needed = 20_000 * KIB + ENVELOPE_BYTES_MAX
    assert f"Set max_message_size = {needed} in rabbitmq.conf." in warning

    body = b"x" * (SENDABLE_BYTES - 300)
    soon = datetime.now(UTC) + timedelta(seconds=2)
    with client_of(bridge) as client, ServiceBusClient(bridge.amqp_url) as own:
        assert limit_of(client, "orders") == 1_024 * KIB
        for each in client, own:
            assert limit_of(each, "large") == SENDABLE_BYTES
        with client.get_queue_sender("large") as sender:
            sender.send_messages(ServiceBusMessage(body))
            sender.schedule_messages(ServiceBusMessage(body), soon)
            with pytest.raises(MessageSizeExceededError, match=str(SENDABLE_BYTES)):
                sender.send_messages(ServiceBusMessage(body + b"x" * 300))
        rest = Rest(bridge)
        assert rest.send("large", body).status == 201
        assert rest.send("large", body + b"x" * 300).status == 403
        with client.get_queue_receiver("large") as receiver:
            for message in take(receiver, 3):
                assert b"".join(message.body) == body
            expect_silence(receiver)

    admin.delete_queue("large")
    assert warnings_of(bridge) == []


@pytest.mark.long
def test_a_rabbitmq_with_less_than_the_tier_s_default_is_named(
    start_broker: Callable[..., Broker], start_bridge: StartBridge, config: Path
) -> None:
    """Health says so of all entities at once, and the link says what may be sent."""
    broker = start_broker(configuration={"max_message_size": "400000"})
    bridge = start_bridge(config=config, on=broker, vhost="/")
    (warning,) = warnings_of(bridge)
    assert warning.startswith("Standard: Messages of 256 KB are more than RabbitMQ")
    with client_of(bridge) as client:
        assert limit_of(client, "orders") == 200_000
