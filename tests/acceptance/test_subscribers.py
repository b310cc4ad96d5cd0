"""Durable subscribers of a topic, as JMS clients attach them: their subscriptions are made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient
from proton import Data, Message, Terminus, symbol
from proton.reactor import ReceiverOption
from proton.utils import BlockingReceiver, LinkDetached

from bridge.testing.process import Bridge
from tests.acceptance.proton_transactions import ProtonClient
from tests.acceptance.sdk import client_of, take, texts
from tests.fixtures.administration import Administer
from tests.fixtures.bridge import StartBridge

ENTITIES: dict[str, dict[str, Any]] = {"plain": {}}
TOPICS = [
    {"Name": name, "Subscriptions": []}
    for name in ("kept", "own", "rights", "refusals", "dead", "transacted")
]


class Subscriber(ReceiverOption):
    """The source of JMS's durable subscriber, as qpid-jms writes it."""

    def __init__(self, *capabilities: str) -> None:
        self.capabilities = capabilities

    def apply(self, link: Any) -> None:
        """Write it."""
        link.source.durability = Terminus.DELIVERIES
        link.source.expiry_policy = Terminus.EXPIRE_NEVER
        link.source.distribution_mode = Terminus.DIST_MODE_COPY
        link.source.capabilities.put_array(False, Data.SYMBOL)
        link.source.capabilities.enter()
        for each in ("topic", *self.capabilities):
            link.source.capabilities.put_symbol(symbol(each))
        link.source.capabilities.exit()


@contextmanager
def jms_client(bridge: Bridge, client_id: str) -> Iterator[ProtonClient]:
    """A connection of a client with this id."""
    client = ProtonClient(bridge.connection_string, bridge.port, client_id)
    try:
        yield client
    finally:
        client.close()


def subscribe(client: ProtonClient, topic: str, name: str, *capabilities: str) -> BlockingReceiver:
    """Attach a durable subscriber."""
    option = Subscriber(*capabilities)
    receiver = client.connection.create_receiver(topic, credit=1, name=name, options=option)
    assert isinstance(receiver, BlockingReceiver)
    return receiver


def received(receiver: BlockingReceiver) -> str:
    """Receive a message, and accept it; return its body."""
    message = receiver.receive()
    receiver.accept()
    return bytes(message.body).decode()


def publish(sdk: ServiceBusClient, topic: str, *bodies: str) -> None:
    """Send messages to a topic."""
    with sdk.get_topic_sender(topic) as sender:
        for body in bodies:
            sender.send_messages(ServiceBusMessage(body))


def names(admin: ServiceBusAdministrationClient, topic: str) -> list[str]:
    """Return the names of a topic's subscriptions."""
    return sorted(each.name for each in admin.list_subscriptions(topic))


def test_a_subscription_is_made_and_kept(bridge: Bridge, administer: Administer) -> None:
    """It has what is sent while its client is away, and Azure's name for it."""
    with jms_client(bridge, "ledger") as client, client_of(bridge) as sdk:
        receiver = subscribe(client, "kept", "all")
        publish(sdk, "kept", "one")
        assert received(receiver) == "one"
    with client_of(bridge) as sdk:
        publish(sdk, "kept", "two")
    with jms_client(bridge, "ledger") as client:
        assert received(subscribe(client, "kept", "all")) == "two"
    assert names(administer(bridge), "kept") == ["all$ledger$D"]


def test_each_client_has_its_own_subscription(bridge: Bridge, administer: Administer) -> None:
    """Of the same name: each gets every message."""
    with (
        jms_client(bridge, "one") as one,
        jms_client(bridge, "two") as two,
        client_of(bridge) as sdk,
    ):
        receivers = [subscribe(each, "own", "all") for each in (one, two)]
        publish(sdk, "own", "news")
        assert [received(each) for each in receivers] == ["news", "news"]
    assert names(administer(bridge), "own") == ["all$one$D", "all$two$D"]


def test_an_sdk_receives_from_it_by_its_path(bridge: Bridge, administer: Administer) -> None:
    """Administration, messages and dead letters know the subscription by its name."""
    with jms_client(bridge, "ledger") as client:
        subscribe(client, "dead", "all").close()
    admin = administer(bridge)
    with client_of(bridge) as sdk:
        publish(sdk, "dead", "one", "two")
        with sdk.get_subscription_receiver("dead", "all$ledger$D") as receiver:
            (first,) = receiver.receive_messages(1, max_wait_time=120)
            (second,) = receiver.receive_messages(1, max_wait_time=120)
            receiver.dead_letter_message(first, reason="poison")
            receiver.complete_message(second)
        options: Any = {"sub_queue": "deadletter"}
        with sdk.get_subscription_receiver("dead", "all$ledger$D", **options) as receiver:
            assert texts(take(receiver)) == ["one"]
    found = admin.get_subscription("dead", "all$ledger$D")
    assert (found.name, found.max_delivery_count) == ("all$ledger$D", 10)
    admin.delete_subscription("dead", "all$ledger$D")
    assert names(admin, "dead") == []


def test_the_right_to_listen_is_enough_for_what_is_there(
    start_bridge: StartBridge, tmp_path: Path
) -> None:
    """Making one takes the right to manage."""
    rules = tmp_path / "rules.json"
    rights = {"all": ["Send", "Listen", "Manage"], "listener": ["Listen"]}
    given = [{"name": name, "primaryKey": "k", "rights": of} for name, of in rights.items()]
    rules.write_text(json.dumps({"rules": given}))
    guarded = start_bridge("--auth", str(rules))
    text = "SharedAccessKeyName={};SharedAccessKey=k"

    with closing(ProtonClient(text.format("listener"), guarded.port, "ledger")) as listener:
        with pytest.raises(LinkDetached, match="Manage"):
            subscribe(listener, "rights", "all")
        with closing(ProtonClient(text.format("all"), guarded.port, "ledger")) as manager:
            subscribe(manager, "rights", "all")
            manager.connection.create_sender("rights").send(
                Message(inferred=True, id="1", body=b"news")
            )
        assert received(subscribe(listener, "rights", "all")) == "news"


def test_a_subscriber_that_makes_its_subscription_is_pinned_to_the_topic(bridge: Bridge) -> None:
    """In a transacted session its first message is settled with a send to another entity."""
    with jms_client(bridge, "ledger") as client, client_of(bridge) as sdk:
        transaction = client.transaction()
        receiver = subscribe(client, "transacted", "all")
        publish(sdk, "transacted", "order")
        assert transaction.accept(receiver) == "order"
        transaction.send(client.sender("plain"), "answer")
        assert transaction.commit() == "committed"
        with sdk.get_queue_receiver("plain") as answers:
            assert texts(take(answers)) == ["answer"]


@pytest.mark.parametrize(
    ("topic", "name", "capabilities", "said"),
    [
        ("refusals", "all", ("shared",), "share"),
        ("refusals", "all or nothing", (), "is not valid"),
        ("plain", "all", (), "no topic"),
        ("missing", "all", (), "not-found"),
    ],
)
def test_what_is_refused(
    bridge: Bridge, administer: Administer, topic: str, name: str, capabilities: Any, said: str
) -> None:
    """By name; nothing is made."""
    with jms_client(bridge, "ledger") as client, pytest.raises(LinkDetached, match=said):
        subscribe(client, topic, name, *capabilities)
    assert names(administer(bridge), "refusals") == []
