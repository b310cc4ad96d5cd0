"""Who may do what: keys, tokens and rights, through the real Python client."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)

from bridge.model.access import sign
from tests.acceptance.sdk import expect_silence, now, receive, seconds, send, take

ENTITIES: dict[str, dict[str, object]] = {"orders": {}, "invoices": {}}

KEYS = {"all": "key-of-all", "sender": "key-of-sender", "listener": "key-of-listener"}
RULES = [
    {"name": "all", "primaryKey": KEYS["all"], "rights": ["Send", "Listen", "Manage"]},
    {"name": "sender", "primaryKey": "x", "secondaryKey": KEYS["sender"], "rights": ["Send"]},
    {"name": "listener", "primaryKey": KEYS["listener"], "rights": ["Listen"]},
    {"name": "one", "primaryKey": "key-of-one", "rights": ["Send", "Listen"], "scope": "orders"},
]

REFUSED = (
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
)


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rules file of the bridge of this module."""
    path = tmp_path_factory.mktemp("auth") / "rules.json"
    path.write_text(json.dumps({"rules": RULES}))
    return path


@pytest.fixture
def guarded(start_bridge: Any, rules: Path) -> Any:
    """A bridge that knows these rules."""
    return start_bridge("--auth", str(rules))


@contextmanager
def client_as(bridge: Any, name: str, key: str, **options: Any) -> Iterator[ServiceBusClient]:
    """A client that has one rule's name and a key."""
    text = (
        f"Endpoint=sb://localhost:{bridge.port};SharedAccessKeyName={name};"
        f"SharedAccessKey={key};UseDevelopmentEmulator=true;"
    )
    with ServiceBusClient.from_connection_string(text, retry_total=0, **options) as client:
        yield client


def token(bridge: Any, path: str, *, for_s: float = 60, name: str = "all") -> str:
    """A token of our own making."""
    resource = quote_plus(f"sb://localhost:{bridge.port}/{path}")
    expires_s = int(time.time() + for_s)
    signature = quote_plus(sign(resource, KEYS[name], expires_s))
    return f"SharedAccessSignature sr={resource}&sig={signature}&se={expires_s}&skn={name}"


@contextmanager
def client_with_token(bridge: Any, text: str) -> Iterator[ServiceBusClient]:
    """A client that has a token and no key."""
    connection = (
        f"Endpoint=sb://localhost:{bridge.port};SharedAccessSignature={text};"
        "UseDevelopmentEmulator=true;"
    )
    with ServiceBusClient.from_connection_string(connection, retry_total=0) as client:
        yield client


def refuse_sending(client: ServiceBusClient, queue: str) -> str:
    """Sending is refused for want of authorisation; return what the client was told."""
    with pytest.raises(REFUSED) as caught:
        send(client, queue, "x")
    return str(caught.value)


def refuse_receiving(client: ServiceBusClient, queue: str, **options: Any) -> str:
    """Receiving is refused for want of authorisation; return what the client was told."""
    with (
        pytest.raises(REFUSED) as caught,
        client.get_queue_receiver(queue, **options) as receiver,
    ):
        receiver.receive_messages(1, max_wait_time=1)
    return str(caught.value)


def test_keys_and_rights(guarded: Any) -> None:
    """Each operation needs its right; either key of a rule does; a wrong key or rule does not."""
    with client_as(guarded, "sender", KEYS["sender"]) as client:
        send(client, "orders", "x")
        assert "'Listen' claim(s) are required" in refuse_receiving(client, "orders")
        refuse_receiving(client, "orders", sub_queue="deadletter")
        with client.get_queue_sender("orders") as sender:
            numbers = sender.schedule_messages(ServiceBusMessage("y"), now() + seconds(60))
            sender.cancel_scheduled_messages(numbers)
    with client_as(guarded, "listener", KEYS["listener"]) as client:
        assert "'Send' claim(s) are required" in refuse_sending(client, "orders")
        with client.get_queue_receiver("orders") as receiver:
            (message,) = receive(receiver)
            receiver.renew_message_lock(message)
            receiver.complete_message(message)
    for name, key in (("all", "wrong"), ("sender", KEYS["all"]), ("nobody", KEYS["all"])):
        with client_as(guarded, name, key) as client:
            assert key not in refuse_sending(client, "orders")


def test_rule_of_one_entity(guarded: Any) -> None:
    """A rule of one queue opens this queue and no other."""
    with client_as(guarded, "one", "key-of-one") as client:
        send(client, "orders", "x")
        with client.get_queue_receiver("orders") as receiver:
            take(receiver)
        refuse_sending(client, "invoices")
        refuse_receiving(client, "invoices")


def test_scheduling_needs_send(guarded: Any) -> None:
    """A client with the right Listen alone can neither schedule nor cancel."""
    with client_as(guarded, "listener", KEYS["listener"]) as client:
        sender = client.get_queue_sender("orders")
        with pytest.raises(ServiceBusError):
            sender.schedule_messages(ServiceBusMessage("x"), now() + seconds(60))
        with pytest.raises(ServiceBusError):
            sender.cancel_scheduled_messages(1)
        sender.close()


def test_unknown_entity(guarded: Any) -> None:
    """An unknown queue is not found, by its name; who has no right there cannot find out."""
    with client_as(guarded, "all", KEYS["all"]) as client:
        with pytest.raises(MessagingEntityNotFoundError, match="no-such-queue"):
            send(client, "no-such-queue", "x")
        with (
            pytest.raises(MessagingEntityNotFoundError, match="no-such-queue"),
            client.get_queue_receiver("no-such-queue") as receiver,
        ):
            receiver.receive_messages(1, max_wait_time=1)
        sender = client.get_queue_sender("no-such-queue")
        with pytest.raises(MessagingEntityNotFoundError, match="no-such-queue"):
            sender.schedule_messages(ServiceBusMessage("x"), now() + seconds(60))
    with client_as(guarded, "one", "key-of-one") as client:
        unknown = refuse_sending(client, "no-such-queue")
        known = refuse_sending(client, "invoices")
        assert unknown.replace("no-such-queue", "invoices") == known


def test_tokens(guarded: Any) -> None:
    """A token opens its resource and what is below; an expired, foreign or broken one nothing."""
    with client_with_token(guarded, token(guarded, "orders")) as client:
        send(client, "orders", "x")
        with client.get_queue_receiver("orders") as receiver:
            take(receiver)
        refuse_sending(client, "invoices")
    with client_with_token(guarded, token(guarded, "")) as client:
        send(client, "invoices", "x")
        with client.get_queue_receiver("invoices") as receiver:
            take(receiver)
    good = token(guarded, "orders")
    broken = good.replace("sig=", "sig=A")
    longer = good.replace("se=1", "se=2")
    for bad in (token(guarded, "orders", for_s=-5), token(guarded, "order"), broken, longer):
        with client_with_token(guarded, bad) as client:
            refuse_sending(client, "orders")


def test_credentials(guarded: Any) -> None:
    """The client's credential classes work as connection strings do."""
    host = f"localhost:{guarded.port}"
    for credential in (
        AzureNamedKeyCredential("all", KEYS["all"]),
        AzureSasCredential(token(guarded, "orders")),
    ):
        with ServiceBusClient(
            host, credential, retry_total=0, custom_endpoint_address=None, use_tls=False
        ) as client:
            send(client, "orders", "x")
            with client.get_queue_receiver("orders") as receiver:
                take(receiver)


class ShortLived:
    """A credential whose tokens live for some seconds; it says that they live longer."""

    def __init__(self, bridge: Any, for_s: float) -> None:
        self._bridge = bridge
        self._for_s = for_s
        self.count = 0

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        """Sign a token."""
        self.count += 1
        return AccessToken(token(self._bridge, "", for_s=self._for_s), int(time.time()) + 3600)


def test_a_token_that_expires_takes_its_links_down(guarded: Any) -> None:
    """When a token ends without a new one, its links end; its locks run on."""
    connection = (
        f"Endpoint=sb://localhost:{guarded.port};SharedAccessKeyName=all;"
        f"SharedAccessKey={KEYS['all']};UseDevelopmentEmulator=true;"
    )
    credential = ShortLived(guarded, 3)
    with ServiceBusClient.from_connection_string(connection, retry_total=0) as client:
        client._credential = credential
        send(client, "orders", "x")
        with client.get_queue_receiver("orders") as receiver:
            (message,) = receive(receiver)
            time.sleep(4)
            with pytest.raises(ServiceBusError):
                receiver.receive_messages(1, max_wait_time=5)
        assert credential.count >= 2
    with (
        client_as(guarded, "all", KEYS["all"]) as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        expect_silence(receiver)
        receiver.complete_message(message)
