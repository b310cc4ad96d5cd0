"""Options of the library's clients: those of the SDK by name, and no others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import pytest

import bridge.client
import bridge.client.aio
import bridge.client.aio.management
import bridge.client.management
from bridge.client.core.session_listing import SessionListing
from bridge.client.exceptions import OperationTimeoutError
from bridge.client.received_message import ServiceBusReceivedMessage

URL = "amqp://guest:guest@localhost:1/"
LANES = (bridge.client, bridge.client.aio)
MANAGEMENT = (bridge.client.management, bridge.client.aio.management)

MAKING: dict[str, Callable[..., Any]] = {
    "get_queue_sender": lambda client, **given: client.get_queue_sender("q", **given),
    "get_topic_sender": lambda client, **given: client.get_topic_sender("t", **given),
    "get_queue_receiver": lambda client, **given: client.get_queue_receiver("q", **given),
    "get_subscription_receiver": lambda client, **given: client.get_subscription_receiver(
        "t", "s", **given
    ),
    "list_queue_sessions": lambda client, **given: client.list_queue_sessions("q", **given),
    "list_subscription_sessions": lambda client, **given: client.list_subscription_sessions(
        "t", "s", **given
    ),
}


@pytest.mark.parametrize("lane", LANES, ids=("sync", "aio"))
@pytest.mark.parametrize("name", MAKING)
def test_an_unknown_option_of_a_sender_or_receiver_is_told(lane: ModuleType, name: str) -> None:
    """A misspelt `max_wait_time` must not wait without end."""
    client = lane.ServiceBusClient(URL)
    with pytest.raises(TypeError, match="max_wait_tme"):
        MAKING[name](client, max_wait_tme=5)


@pytest.mark.parametrize("made", [*LANES, *MANAGEMENT], ids=lambda each: each.__name__)
def test_an_unknown_option_of_a_client_is_told(made: ModuleType) -> None:
    """By both ways to make one."""
    client = getattr(made, "ServiceBusClient", None) or made.ServiceBusAdministrationClient
    for make in (client, client.from_connection_string):
        with pytest.raises(TypeError, match="retry_totl"):
            make(URL, retry_totl=1)


@pytest.mark.parametrize("lane", LANES, ids=("sync", "aio"))
@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("send_messages", ("x",)),
        ("schedule_messages", ("x", datetime(2030, 1, 1, tzinfo=UTC))),
        ("cancel_scheduled_messages", (1,)),
    ],
)
async def test_an_unknown_option_of_a_call_is_told(
    lane: ModuleType, name: str, given: tuple[Any, ...]
) -> None:
    """Before anything is sent: nothing listens at that address."""
    sender = lane.ServiceBusClient(URL).get_queue_sender("q")
    with pytest.raises(TypeError, match="timout"):
        await getattr(sender, name)(*given, timout=1)


@pytest.mark.parametrize("lane", LANES, ids=("sync", "aio"))
@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("peek_messages", ()),
        ("receive_deferred_messages", ([1],)),
        ("renew_message_lock", (ServiceBusReceivedMessage.__new__(ServiceBusReceivedMessage),)),
    ],
)
async def test_an_unknown_option_of_a_receiver_is_told(
    lane: ModuleType, name: str, given: tuple[Any, ...]
) -> None:
    """Likewise."""
    receiver = lane.ServiceBusClient(URL).get_queue_receiver("q")
    with pytest.raises(TypeError, match="timout"):
        await getattr(receiver, name)(*given, timout=1)


@pytest.mark.parametrize("lane", LANES, ids=("sync", "aio"))
def test_every_option_of_the_sdk_is_taken(lane: ModuleType) -> None:
    """Also those that mean nothing on RabbitMQ."""
    client = lane.ServiceBusClient(URL, retry_total=0, http_proxy=None, logging_enable=True)
    sender = client.get_topic_sender("t", client_identifier="mine", socket_timeout=2.0)
    receiver = client.get_queue_receiver(
        "q", prefetch_count=3, socket_timeout=1.0, client_identifier="ours", max_wait_time=1
    )
    assert (sender.client_identifier, receiver.client_identifier) == ("mine", "ours")


@pytest.mark.parametrize("lane", LANES, ids=("sync", "aio"))
@pytest.mark.parametrize("name", ["list_queue_sessions", "list_subscription_sessions"])
def test_the_timeout_of_a_list_of_sessions_is_checked(lane: ModuleType, name: str) -> None:
    """As the SDK does, before anything is asked."""
    with pytest.raises(ValueError, match="greater than 0"):
        MAKING[name](lane.ServiceBusClient(URL), timeout=0)


def test_the_timeout_of_a_list_of_sessions_is_for_all_pages_together() -> None:
    """It begins with the first page; each page has what is left."""
    listing = SessionListing("q", None, 60.0)
    first, second = listing.next_page().timeout_s, listing.next_page().timeout_s
    assert 0 < second < first <= 60.0

    short = SessionListing("q", None, 1e-9)
    short.next_page()
    with pytest.raises(OperationTimeoutError):
        short.next_page()
