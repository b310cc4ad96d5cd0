"""A migration holds a queue: SDKs are told who holds it, or wait until the hold ends."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from azure.servicebus import ServiceBusReceiver
from azure.servicebus.exceptions import MessagingEntityDisabledError, ServiceBusServerBusyError

from bridge.remote.address import RemoteAddress
from bridge.remote.credentials import credential_in
from bridge.remote.namespace import RemoteNamespace
from tests.acceptance.sdk import PATIENCE_S, client_of, send, take, texts, warnings_of
from tests.fixtures.waiting import eventually

ENTITIES: dict[str, dict[str, object]] = {"held": {}, "held-waiting": {}}
RUN = "2026-11-27.held"
HELD = f"is held by the migration '{RUN}'"


def ask(bridge: Any, entity: str, *, is_held: bool) -> None:
    """Hold an entity, or end its hold."""

    async def asked() -> None:
        text = bridge.connection_string
        credential = credential_in(text)
        assert credential is not None
        async with RemoteNamespace(RemoteAddress.of(text), credential) as namespace:
            management = await namespace.management(entity)
            await (management.hold(RUN) if is_held else management.release(RUN))

    asyncio.run(asked())


def test_an_sdk_is_told_who_holds_the_queue(bridge: Any) -> None:
    """And all goes on when the hold ends."""
    with client_of(bridge) as client:
        send(client, "held", "a")
        ask(bridge, "held", is_held=True)
        with pytest.raises(ServiceBusServerBusyError, match=HELD):
            send(client, "held", "b")
        with (
            pytest.raises(MessagingEntityDisabledError, match=HELD),
            client.get_queue_receiver("held"),
        ):
            pass
        assert any(f"'{RUN}' holds 'held': " in each for each in warnings_of(bridge))
        ask(bridge, "held", is_held=False)
        send(client, "held", "b")
        with client.get_queue_receiver("held") as receiver:
            assert texts(take(receiver, 2)) == ["a", "b"]


def test_a_receiver_that_asks_again_goes_on_when_the_hold_ends(bridge: Any) -> None:
    """The same receiver: its refusal says that a later try may succeed."""
    with (
        client_of(bridge, retry_total=20, retry_backoff_factor=0.1) as client,
        client.get_queue_receiver("held-waiting") as receiver,
    ):
        send(client, "held-waiting", "first")
        take(receiver, 1)
        ask(bridge, "held-waiting", is_held=True)
        eventually(lambda: any("link.ended" in each and RUN in each for each in bridge.lines))
        with ThreadPoolExecutor(1) as beside:
            waiting = beside.submit(_next, receiver)
            ask(bridge, "held-waiting", is_held=False)
            send(client, "held-waiting", "second")
            assert waiting.result(PATIENCE_S) == ["second"]


def _next(receiver: ServiceBusReceiver) -> list[str]:
    """Return the next message, asked for until it is there."""
    found: list[str] = []

    def ask_again() -> bool:
        with suppress(MessagingEntityDisabledError):
            found.extend(texts(receiver.receive_messages(1, max_wait_time=2)))
        return bool(found)

    eventually(ask_again)
    return found
