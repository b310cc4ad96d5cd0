"""Connection strings are taken apart as the SDK does; RabbitMQ's URL may stand in their place."""

from __future__ import annotations

import logging
from typing import Any

import azure.servicebus
import pytest

from bridge.client import ServiceBusClient, parse_connection_string
from bridge.client.aio import ServiceBusClient as AioClient

KEY = "SharedAccessKeyName=root;SharedAccessKey=c2VjcmV0PT0="
NAMES = (
    *("fully_qualified_namespace", "endpoint", "entity_path"),
    *("shared_access_signature", "shared_access_key_name", "shared_access_key"),
)


@pytest.mark.parametrize(
    "text",
    [
        f"Endpoint=sb://one.servicebus.windows.net/;{KEY}",
        f" Endpoint=sb://one.servicebus.windows.net;{KEY};EntityPath=orders; ",
        "Endpoint=sb://localhost:5672/;sharedaccesssignature=SharedAccessSignature sr=x&se=9",
        f"Endpoint=sb://localhost;{KEY};UseDevelopmentEmulator=true;",
    ],
)
def test_what_the_sdk_reads(text: str) -> None:
    """Value by value."""
    theirs, ours = azure.servicebus.parse_connection_string(text), parse_connection_string(text)
    for name in NAMES:
        assert getattr(ours, name) == getattr(theirs, name) == ours[name]
    assert "c2VjcmV0" not in repr(ours)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "orders",
        KEY,
        f"Endpoint=;{KEY}",
        f"Endpoint=one;{KEY}",
        "Endpoint=sb://one/",
        "Endpoint=sb://one/;SharedAccessKey=k",
        "Endpoint=sb://one/;SharedAccessKeyName=k",
        f"Endpoint=sb://one/;{KEY};SharedAccessSignature=s",
    ],
)
def test_what_the_sdk_refuses(text: str) -> None:
    """With the same class of error."""
    for parse in (azure.servicebus.parse_connection_string, parse_connection_string):
        with pytest.raises(ValueError, match=r"."):
            parse(text)


def test_a_url_of_rabbitmq() -> None:
    """A client takes it where the SDK's takes the namespace."""
    found = parse_connection_string(" amqp://u:p@localhost/v ")
    assert found.fully_qualified_namespace == found.endpoint == "amqp://u:p@localhost/v"
    assert found.shared_access_key is None


@pytest.mark.parametrize("made", [ServiceBusClient, AioClient])
def test_a_credential_is_accepted_and_not_used(made: Any, caplog: pytest.LogCaptureFixture) -> None:
    """RabbitMQ's login is in its URL; one warning says so, under the SDK's logger."""
    caplog.set_level(logging.WARNING, "azure.servicebus")
    made("one.servicebus.windows.net", object(), rabbitmq_url="amqp://localhost:1")
    assert [(each.name, each.levelname) for each in caplog.records] == [
        ("azure.servicebus", "WARNING")
    ]
