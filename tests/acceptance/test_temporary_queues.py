"""Temporary queues, as JMS clients ask for them: they live as long as the link that asked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus.management import ServiceBusAdministrationClient
from proton import symbol
from proton.reactor import SenderOption
from proton.utils import BlockingSender, LinkDetached

from bridge.testing.process import Bridge
from tests.acceptance.proton_transactions import ProtonClient
from tests.acceptance.sdk import PATIENCE_S, client_of, send
from tests.fixtures.administration import Administer

ENTITIES: dict[str, dict[str, Any]] = {"plain": {}}


class Temporary(SenderOption):
    """The target of JMS's `createTemporaryQueue`, or of `createTemporaryTopic`."""

    def __init__(self, capability: str) -> None:
        self.capability = capability

    def apply(self, link: Any) -> None:
        """Write it."""
        link.target.dynamic = True
        link.target.capabilities.put_symbol(symbol(self.capability))


@contextmanager
def proton(bridge: Bridge) -> Iterator[ProtonClient]:
    """A connection."""
    with closing(ProtonClient(bridge.connection_string, bridge.port)) as client:
        yield client


def create(client: ProtonClient, capability: str = "temporary-queue") -> BlockingSender:
    """Ask for a temporary queue."""
    sender = client.connection.create_sender(None, options=Temporary(capability))
    assert isinstance(sender, BlockingSender)
    return sender


def wait_until_gone(admin: ServiceBusAdministrationClient, queue: str) -> None:
    """Wait for a queue's end."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            admin.get_queue(queue)
        except ResourceNotFoundError:
            return
        time.sleep(0.1)
    raise AssertionError(f"{queue} is there")


def test_a_temporary_queue_ends_with_its_link(bridge: Bridge, administer: Administer) -> None:
    """Everybody sends to its address, and its client receives from it."""
    admin = administer(bridge)
    with proton(bridge) as client:
        asking = create(client)
        queue = asking.link.remote_target.address
        assert admin.get_queue(queue).auto_delete_on_idle == timedelta(minutes=5)
        receiver = client.receiver(queue)
        with client_of(bridge) as sdk:
            send(sdk, queue, "answer")
        message = receiver.receive()
        assert bytes(message.body) == b"answer"
        receiver.accept()
        receiver.close()
        asking.close()
        wait_until_gone(admin, queue)


def test_a_temporary_queue_ends_with_its_connection(bridge: Bridge, administer: Administer) -> None:
    """With what is in it; another connection's stays."""
    admin = administer(bridge)
    with proton(bridge) as other:
        kept = create(other).link.remote_target.address
        with proton(bridge) as client:
            lost = create(client).link.remote_target.address
            with client_of(bridge) as sdk:
                send(sdk, lost, "never read")
        wait_until_gone(admin, lost)
        assert admin.get_queue(kept).name == kept


def test_a_temporary_topic_is_refused(bridge: Bridge) -> None:
    """By name."""
    with proton(bridge) as client, pytest.raises(LinkDetached, match="not implemented"):
        create(client, "temporary-topic")
