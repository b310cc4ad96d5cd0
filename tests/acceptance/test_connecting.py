"""Every way of docs/connecting.md connects: its snippets, with what `busbridge trust` prints."""

from __future__ import annotations

import ssl
import sys

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.exceptions import ServiceBusError

from tests.acceptance.connecting import (
    program,
    run,
    snippets,
    variables_to_trust,
    without_flag,
)
from tests.acceptance.driver import HERE, tool
from tests.acceptance.sdk import client_of, expect_silence, send, take
from tests.fixtures.bridge import Bridge

ENTITIES = {"orders": {}}

WAYS = ("plain", "tls", "websockets", "administration")


@pytest.mark.parametrize("way", WAYS)
def test_python(bridge: Bridge, way: str) -> None:
    """The snippet of Python, as it stands."""
    printed = run([sys.executable, "-c", program(bridge, "python", way)], HERE)

    assert printed.startswith("hello")


@pytest.mark.parametrize("way", WAYS)
def test_javascript(bridge: Bridge, way: str) -> None:
    """The snippet of JavaScript, as it stands."""
    trusted = {} if way == "plain" else variables_to_trust(bridge, "JavaScript")
    command = [tool("node", "make test sets Node up"), "--input-type=module", "-e"]
    printed = run([*command, program(bridge, "javascript", way)], HERE / "node", **trusted)

    assert printed.startswith("hello")


def test_every_snippet_is_run() -> None:
    """Here, or for Java, Go and .NET in test_connecting_sdks.py; Go's WebSockets want a library."""
    languages = ("python", "javascript", "java", "go", "csharp")
    every = {(language, way) for language in languages for way in WAYS}

    assert set(snippets()) == every - {("go", "websockets")}


def test_trust_is_needed(bridge: Bridge) -> None:
    """A client that does not trust the CA connects neither over TLS nor over WebSockets."""
    for transport in (TransportType.Amqp, TransportType.AmqpOverWebsocket):
        with (
            pytest.raises(ServiceBusError, match="CERTIFICATE_VERIFY_FAILED"),
            ServiceBusClient.from_connection_string(
                without_flag(bridge),
                custom_endpoint_address=f"sb://localhost:{bridge.port}",
                transport_type=transport,
                retry_total=0,
            ) as client,
        ):
            send(client, "orders", "never")


@pytest.mark.parametrize("transport", [TransportType.Amqp, TransportType.AmqpOverWebsocket])
def test_large_and_many_over_tls(bridge: Bridge, transport: TransportType) -> None:
    """A message of 200 kB and a hundred small ones come as they were sent, in order."""
    with ServiceBusClient.from_connection_string(
        without_flag(bridge),
        custom_endpoint_address=f"sb://localhost:{bridge.port}",
        transport_type=transport,
        ssl_context=ssl.create_default_context(cafile=str(bridge.ca)),
        retry_total=0,
    ) as client:
        send(client, "orders", "x" * 200_000)
        with client.get_queue_sender("orders") as sender:
            batch = sender.create_message_batch()
            for number in range(100):
                batch.add_message(ServiceBusMessage(str(number)))
            sender.send_messages(batch)
        with client.get_queue_receiver("orders") as receiver:
            bodies = [str(message) for message in take(receiver, 101)]
    assert bodies == ["x" * 200_000, *(str(number) for number in range(100))]
    with client_of(bridge) as plain, plain.get_queue_receiver("orders") as receiver:
        expect_silence(receiver)
