"""A bridge that dies between the two entries of a refused move: peeks tell the truth all the same.

The next queue has refused the message, the stream of moved messages has taken its copy, and the
entry that the message is where it was is not written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusMessageState
from azure.servicebus import ServiceBusReceiver as Receiver
from azure.servicebus import ServiceBusSubQueue as SubQueue
from azure.servicebus.exceptions import ServiceBusError

from tests.fixtures.bridge import Bridge, StartBridge
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import eventually

QUEUE = "dropped"
SENT = 8
POINT = "engine.move.refused"
DIES_S = 120.0

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@contextlib.contextmanager
def receiving(bridge: Bridge, sub_queue: SubQueue | None = None) -> Iterator[Receiver]:
    """Open a receiver of a client without retries."""
    with (
        ServiceBusClient.from_connection_string(bridge.connection_string, retry_total=0) as client,
        client.get_queue_receiver(QUEUE, sub_queue=sub_queue) as receiver,
    ):
        yield receiver


def shown(bridge: Bridge, sub_queue: SubQueue | None = None) -> dict[int, bool]:
    """Return the numbers that a peek shows, and which messages are deferred."""
    with receiving(bridge, sub_queue) as receiver:
        return {
            each.sequence_number or 0: each.state is ServiceBusMessageState.DEFERRED
            for each in receiver.peek_messages(100)
        }


def send_and_peek(bridge: Bridge) -> None:
    """Send messages; from the peek on it is recorded what becomes of them."""
    with (
        ServiceBusClient.from_connection_string(bridge.connection_string) as client,
        client.get_queue_sender(QUEUE) as sender,
    ):
        sender.send_messages([ServiceBusMessage(str(number)) for number in range(SENT)])
    eventually(lambda: len(shown(bridge)) == SENT, "all are shown")


def completed(bridge: Bridge, count: int) -> set[int]:
    """Receive so many messages and complete them; return their numbers."""
    found: set[int] = set()
    with receiving(bridge) as receiver:
        while len(found) < count:
            for each in receiver.receive_messages(count, max_wait_time=5):
                receiver.complete_message(each)
                found.add(each.sequence_number or 0)
    return found


def test_a_bridge_that_dies_when_a_full_queue_has_refused_a_deferral(
    broker: Broker, vhost: str, start_bridge: StartBridge
) -> None:
    """The refused message is shown as active, and those deferred before as deferred."""
    bridge = start_bridge()
    policy = {
        "pattern": rf"^{QUEUE}/\$deferred$",
        "definition": {"max-length": 2, "overflow": "reject-publish"},
        "priority": 5_000,
        "apply-to": "queues",
    }
    broker.management("PUT", f"/api/policies/{vhost}/full", policy)
    bridge.kill()
    bridge.start(BUSBRIDGE_FAILPOINT=POINT)
    send_and_peek(bridge)
    deferred: set[int] = set()
    with contextlib.suppress(ServiceBusError), receiving(bridge) as receiver:
        for each in receiver.receive_messages(SENT, max_wait_time=120):
            receiver.defer_message(each)
            deferred.add(each.sequence_number or 0)
    bridge.wait(within_s=DIES_S)
    bridge.start()
    expected = {number: number in deferred for number in range(1, SENT + 1)}
    assert 0 < len(deferred) < SENT
    assert shown(bridge) == expected
    assert completed(bridge, SENT - len(deferred)) == {*expected} - deferred
    eventually(lambda: shown(bridge) == dict.fromkeys(deferred, True), "the active ones are gone")


def test_a_bridge_that_dies_when_a_deleted_queue_has_refused_a_dead_letter(
    broker: Broker, vhost: str, start_bridge: StartBridge
) -> None:
    """The message is shown as active; of the dead letters it is none."""
    bridge = start_bridge()
    bridge.kill()
    bridge.start(BUSBRIDGE_FAILPOINT=POINT)
    send_and_peek(bridge)
    with contextlib.suppress(ServiceBusError), receiving(bridge) as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=120)
        broker.management("DELETE", f"/api/queues/{vhost}/{QUEUE}%2F%24deadletterqueue")
        receiver.dead_letter_message(message, reason="mine")
    bridge.wait(within_s=DIES_S)
    bridge.start()
    assert shown(bridge) == dict.fromkeys(range(1, SENT + 1), False)
    assert shown(bridge, SubQueue.DEAD_LETTER) == {}
    with receiving(bridge) as receiver:
        (again,) = receiver.receive_messages(1, max_wait_time=120)
        assert again.sequence_number == 1
        receiver.dead_letter_message(again, reason="mine")
    assert shown(bridge, SubQueue.DEAD_LETTER) == {1: False}
    assert shown(bridge) == dict.fromkeys(range(2, SENT + 1), False)
