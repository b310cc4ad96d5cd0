"""Transactions through the gateway, by Proton's transactional client: all or nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bridge.testing.process import Bridge
from tests.acceptance.proton_transactions import ProtonClient
from tests.acceptance.sdk import client_of, expect_silence, send, take, texts

ENTITIES = {
    name: {"LockDuration": "PT5S", "MaxDeliveryCount": 10}
    for name in ("commits", "rollbacks", "dead-clients", "pipelines", "via", "target", "ids")
} | {"many": {"LockDuration": "PT2M"}}


@contextmanager
def proton(bridge: Bridge) -> Iterator[ProtonClient]:
    """A connection of Proton's."""
    client = ProtonClient(bridge.connection_string, bridge.port)
    try:
        yield client
    finally:
        client.close()


def left_in(bridge: Bridge, queue: str, count: int) -> list[str]:
    """Complete the messages of a queue: so many, and no more."""
    with client_of(bridge) as client, client.get_queue_receiver(queue) as receiver:
        found = texts(take(receiver, count))
        expect_silence(receiver)
        return found


def test_what_is_received_and_sent_is_committed_together(bridge: Bridge) -> None:
    """The message is gone, and what was sent is there: not before the commit."""
    queue = "commits"
    with client_of(bridge) as client:
        send(client, queue, "order")
        with client.get_queue_receiver(queue) as receiver, proton(bridge) as peer:
            source, target = peer.receiver(queue), peer.sender(queue)
            transaction = peer.transaction()
            assert transaction.accept(source) == "order"
            sent = transaction.send(target, "answer")
            peer.wait(lambda: sent.remote_state)
            expect_silence(receiver)
            assert transaction.commit() == "committed"
            source.link.close()
            assert texts(take(receiver)) == ["answer"]
            expect_silence(receiver, for_s=7.0)


@pytest.mark.long
def test_a_rollback_leaves_the_message_and_sends_nothing(bridge: Bridge) -> None:
    """The lock goes on, and the message comes again when it has ended."""
    queue = "rollbacks"
    with client_of(bridge) as client:
        send(client, queue, "order")
    with proton(bridge) as peer:
        source, target = peer.receiver(queue), peer.sender(queue)
        transaction = peer.transaction()
        transaction.accept(source)
        transaction.send(target, "never")
        assert transaction.abort() == "aborted"
        source.link.close()
        assert left_in(bridge, queue, 1) == ["order"]


@pytest.mark.long
def test_a_dead_client_rolls_back(bridge: Bridge) -> None:
    """What it had in a transaction is as if it had never been asked for."""
    queue = "dead-clients"
    with client_of(bridge) as client:
        send(client, queue, "order")
    program = [sys.executable, "-m", "tests.acceptance.proton_transactions"]
    arguments = [bridge.connection_string, str(bridge.port), queue]
    with subprocess.Popen([*program, *arguments], stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdout is not None
        assert peer.stdout.readline() == "ready\n"
        peer.kill()
    assert left_in(bridge, queue, 1) == ["order"]


def test_a_commit_right_behind_its_sends(bridge: Bridge) -> None:
    """It waits for them: none is left behind. The messages keep their order."""
    queue = "pipelines"
    with proton(bridge) as peer:
        target = peer.sender(queue)
        transaction = peer.transaction()
        for number in range(50):
            transaction.send(target, str(number))
        assert transaction.commit() == "committed"
    assert left_in(bridge, queue, 50) == [str(number) for number in range(50)]


@pytest.mark.long
def test_transactions_one_after_the_other(bridge: Bridge) -> None:
    """Each message is answered once."""
    queue, count = "many", 20
    with client_of(bridge) as client:
        send(client, queue, *(f"order-{number}" for number in range(count)))
    with proton(bridge) as peer:
        source, target = peer.receiver(queue, credit=count), peer.sender(queue)
        for number in range(count):
            transaction = peer.transaction()
            body = transaction.accept(source)
            assert body == f"order-{number}"
            transaction.send(target, body.replace("order", "answer"))
            assert transaction.commit() == "committed"
    assert left_in(bridge, queue, count) == [f"answer-{number}" for number in range(count)]


@pytest.mark.long
def test_an_unknown_id(bridge: Bridge) -> None:
    """The operation is refused, and so is the discharge."""
    with proton(bridge) as peer:
        target = peer.sender("ids")
        transaction = peer.transaction()
        transaction.own.id = b"?" * 16
        assert transaction.commit().startswith("amqp:transaction:unknown-id: ")
        with client_of(bridge) as client, client.get_queue_receiver("ids") as receiver:
            delivery = transaction.send(target, "never")
            peer.wait(lambda: delivery.remote_state)
            expect_silence(receiver)


@pytest.mark.long
def test_a_message_received_from_one_queue_and_sent_to_another(bridge: Bridge) -> None:
    """By way of the first, when the coordinator is the first link of the session."""
    with client_of(bridge) as client:
        send(client, "via", "order")
    with proton(bridge) as peer:
        transaction = peer.transaction()
        source, target = peer.receiver("via"), peer.sender("target")
        transaction.accept(source)
        transaction.send(target, "answer")
        assert transaction.commit() == "committed"
        source.link.close()
        assert left_in(bridge, "target", 1) == ["answer"]
        assert left_in(bridge, "via", 0) == []
