"""Addresses of remote namespaces: Microsoft's connection strings, and hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge.remote.address import RemoteAddress
from bridge.remote.errors import RemoteOtherEntity

KEY = "SharedAccessKeyName=root;SharedAccessKey=c2VjcmV0PT0="
AZURE = "one.servicebus.windows.net"


@pytest.mark.parametrize(
    ("text", "options", "host", "port", "transport", "tls"),
    [
        (f"Endpoint=sb://{AZURE}/;{KEY}", {}, AZURE, 5671, "tcp", True),
        (f" Endpoint=sb://{AZURE};{KEY}; ", {}, AZURE, 5671, "tcp", True),
        (AZURE, {}, AZURE, 5671, "tcp", True),
        (f"sb://{AZURE}/", {}, AZURE, 5671, "tcp", True),
        (AZURE, {"websocket": True}, AZURE, 443, "websocket", True),
        (
            "Endpoint=sb://localhost:6000;UseDevelopmentEmulator=true;",
            {},
            "localhost",
            6000,
            "tcp",
            0,
        ),
        (
            f"Endpoint=sb://localhost;{KEY};UseDevelopmentEmulator=true",
            {},
            "localhost",
            5672,
            "tcp",
            0,
        ),
        (
            f"Endpoint=sb://localhost;{KEY};UseDevelopmentEmulator=True",
            {},
            "localhost",
            5671,
            "tcp",
            1,
        ),
        (f"Endpoint=sb://box:7001/;{KEY}", {}, "box", 7001, "tcp", True),
        (f"Endpoint=sb://[::1]:7001/;{KEY}", {}, "::1", 7001, "tcp", True),
        (AZURE, {"custom_endpoint_address": "sb://gate:7002"}, "gate", 7002, "tcp", True),
        (AZURE, {"custom_endpoint_address": "https://gate"}, "gate", 5671, "tcp", True),
        (
            AZURE,
            {"custom_endpoint_address": "gate", "websocket": True},
            "gate",
            443,
            "websocket",
            1,
        ),
    ],
)
def test_where_a_namespace_is(
    text: str, options: dict[str, Any], host: str, port: int, transport: str, tls: bool
) -> None:
    """As the SDKs read it."""
    found = RemoteAddress.of(text, **options)

    assert (found.host, found.port, found.transport, found.tls) == (host, port, transport, tls)


def test_a_custom_endpoint_leaves_the_namespace_its_name() -> None:
    """Tokens and `open` are for the namespace, whatever host passes them on."""
    found = RemoteAddress.of(AZURE, custom_endpoint_address="sb://gate:1", ca_file="ca.crt")

    assert found.audience("orders") == f"sb://{AZURE}/orders"
    assert found.hostname == AZURE
    assert found.ca_file == Path("ca.crt")


def test_the_entity_and_the_port_of_a_connection_string() -> None:
    """The audience has the port, as the SDKs write it; `open` names the host alone."""
    found = RemoteAddress.of(f"Endpoint=sb://box:7001/;{KEY};EntityPath=a/b")

    assert found.entity == "a/b"
    assert found.audience("a/b") == "sb://box:7001/a/b"
    assert found.hostname == "box"
    assert found.url == "amqps://box:7001"


@pytest.mark.parametrize(
    ("bound", "inside", "outside"),
    [
        (
            "Orders",
            ["orders", "ORDERS/$DeadLetterQueue", "orders/$Transfer/$DeadLetterQueue", "/orders/"],
            ["orders2", "order", "orders/eu", "events/Subscriptions/orders"],
        ),
        (
            "eu/events",
            [
                "eu/events",
                "eu/events/Subscriptions/a",
                "EU/events/subscriptions/a/$DeadLetterQueue",
            ],
            ["eu", "events", "eu/events/x"],
        ),
    ],
)
def test_a_connection_string_for_one_entity_is_for_no_other(
    bound: str, inside: list[str], outside: list[str]
) -> None:
    """Below a topic are its subscriptions, below each its dead letters; others are named."""
    found = RemoteAddress.of(f"Endpoint=sb://box;{KEY};EntityPath={bound}")
    for each in inside:
        found.check(each)
    for each in outside:
        with pytest.raises(RemoteOtherEntity, match=f"{bound!r} alone .EntityPath., not for"):
            found.check(each)
        RemoteAddress.of(f"Endpoint=sb://box;{KEY}").check(each)


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("Endpoint=sb://localhost;UseDevelopmentEmulator=true", {}, "http://localhost:5672"),
        ("Endpoint=sb://localhost:5672;UseDevelopmentEmulator=true", {}, None),
        ("Endpoint=sb://localhost;UseDevelopmentEmulator=true", {"websocket": True}, None),
        (
            "Endpoint=sb://a;UseDevelopmentEmulator=true",
            {"custom_endpoint_address": "localhost:5301"},
            None,
        ),
        (AZURE, {}, None),
    ],
)
def test_administration_has_a_second_place_where_no_port_is_given(
    text: str, options: dict[str, Any], expected: str | None
) -> None:
    """A bridge's port of AMQP, beside the emulator's own of administration."""
    assert RemoteAddress.of(text, **options).other_administration_url == expected


def test_the_url_of_a_websocket() -> None:
    """Path and scheme are the SDKs'; an IPv6 address has its brackets."""
    found = RemoteAddress.of("sb://[::1]", websocket=True)

    assert found.url == "wss://[::1]:443/$servicebus/websocket"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sb://",
        "two words",
        "box:port",
        "box:70000",
        "Endpoint=box",
        "Endpoint=sb://box:port/",
        KEY,
        "Endpoint=sb://box/;SharedAccessKey=c2VjcmV0",
        f"Endpoint=sb://box/;{KEY};SharedAccessSignature=c2VjcmV0",
        f"Endpoint=sb://box/;{KEY};c2VjcmV0",
    ],
)
def test_a_malformed_address_is_refused_and_no_key_shown(text: str) -> None:
    """With a ValueError of one sentence."""
    with pytest.raises(ValueError, match=r"\.$") as caught:
        RemoteAddress.of(text)

    assert "c2VjcmV0" not in str(caught.value)
