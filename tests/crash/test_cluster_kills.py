"""The node that leads is killed, in a cluster of three, under load; nothing confirmed is lost.

Nor is it when nodes lose sight of each other for a moment.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from itertools import islice

import pytest
from azure.servicebus import (
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
)

from bridge.topology import names
from tests.brokers.node import Node
from tests.crash.events import Killed
from tests.crash.load import completing
from tests.crash.siege import Siege, wait_for, wait_for_acks
from tests.fixtures.bridge import StartBridge
from tests.fixtures.broker import Broker

pytestmark = pytest.mark.kills

BACK_S = 180.0
"""A node needs some seconds to start and to find the others, and queues to elect."""

LOST = re.compile(r"(\S+)Z \w+ +broker\.lost name=busbridge consuming ")
"""The bridge's log: RabbitMQ has ended the connection that holds the locks. Before 4.3 it does so
when a `basic.get` meets an election (541), a while after the kill."""

SEED = 5

MANY = 60
"""More messages than an Erlang map keeps in order (32)."""

FEW = 10

WRITTEN = """
{messages, Waiting} = process_info(whereis(%s), messages),
[] =/= [Rpc || {'$gen_cast', Rpc} <- Waiting,
               element(1, Rpc) =:= append_entries_rpc, element(7, Rpc) =/= []].
"""
"""Whether the leader has sent entries of its log to a queue's member that stands still (Erlang)."""

LOSE_SIGHT = """
Other = '%s',
Cookie = erlang:get_cookie(),
erlang:set_cookie(Other, none),
erlang:disconnect_node(Other),
timer:sleep(3000),
erlang:set_cookie(Other, Cookie),
net_kernel:connect_node(Other).
"""
"""Parts a node from another one, for longer than the 2 s that RabbitMQ waits since 4.3 (Erlang)."""

BUCKET = "a bucket"
"""Stands for one of those that there are when its turn comes."""


def leader(broker: Broker, queue: str) -> Node:
    """Return the node that leads a queue or stream."""
    assert broker.cluster is not None
    found = next(row for row in queues(broker) if row["name"] == queue)
    return broker.cluster.node(found["leader"])


def lead(cluster: Broker, queue: str, ours: Node, leading: Node) -> None:
    """Have a queue led by a node, as another one sees to."""
    member = f"'%2F_{queue}'"
    move = f"ra:transfer_leadership({{{member}, node()}}, {{{member}, '{leading.name}'}})."
    ours.rabbitmqctl("eval", move)
    wait_for("the leader", lambda: leader(cluster, queue) is leading, within_s=120)


def queues(broker: Broker) -> list[dict[str, str]]:
    """Return all queues and streams, as far as RabbitMQ knows of them now."""
    rows: list[dict[str, str]] = broker.management("GET", "/api/queues/%2F")
    return rows


def buckets(broker: Broker) -> list[str]:
    """Return the names of the queues in which scheduled messages wait."""
    prefix = names.bucket_prefix("load")
    return [row["name"] for row in queues(broker) if row["name"].startswith(prefix)]


def kill(siege: Siege, cluster: Broker, node: Node) -> None:
    """Kill a node under load; go on without it, and then with it."""
    assert cluster.cluster is not None
    node.kill()
    siege.note_kill(is_broker=True)
    siege.progress(within_s=BACK_S)
    cluster.cluster.restart(node)
    siege.progress(within_s=BACK_S)


def judge(siege: Siege) -> None:
    """Judge what happened; what ended the bridge's locks counts as a kill of RabbitMQ."""
    for line in siege.bridge.lines:
        if found := LOST.match(line):
            moment = datetime.fromisoformat(found[1]).replace(tzinfo=UTC)
            for notes in (siege.load, siege.side):
                notes.add(Killed(int(moment.timestamp() * 1000), is_broker=True))
    siege.judge()


def receiving(receiver: ServiceBusReceiver) -> Iterator[ServiceBusReceivedMessage]:
    """Receive message after message."""
    while messages := receiver.receive_messages(1, max_wait_time=5):
        yield from messages


@pytest.mark.soak
def test_a_leader_kill(cluster: Broker, start_bridge: StartBridge) -> None:
    """The node dies that leads all queues, and that the bridge is connected to."""
    siege = Siege(start_bridge(on=cluster, vhost="/"))
    pid = siege.bridge.pid
    with siege.under_load():
        kill(siege, cluster, leader(cluster, names.inbox("load")))
    assert siege.bridge.pid == pid
    judge(siege)


@pytest.mark.soak
def test_leader_kills(cluster: Broker, start_bridge: StartBridge) -> None:
    """The nodes that lead inbox, active queue, journal, a bucket or dead letters die.

    The bridge's process stays and reconnects by itself; clients only see errors that pass.
    """
    siege = Siege(start_bridge(on=cluster, vhost="/"))
    pid = siege.bridge.pid
    chance = random.Random(SEED)
    with siege.under_load():
        wait_for("a bucket", lambda: bool(buckets(cluster)), within_s=120)
        for queue in (
            names.inbox("load"),
            names.active_queue("load"),
            names.journal("load"),
            BUCKET,
            names.dead_letter_queue("load"),
        ):
            time.sleep(chance.uniform(1, 3))
            if queue == BUCKET:
                wait_for("a bucket", lambda: bool(buckets(cluster)), within_s=120)
                queue = chance.choice(buckets(cluster))
            kill(siege, cluster, leader(cluster, queue))
    assert siege.bridge.pid == pid
    assert siege.bridge.is_running
    judge(siege)


@pytest.mark.soak
def test_what_is_completed_after_a_bridge_s_end_is_so_on_every_node(
    cluster: Broker, start_bridge: StartBridge
) -> None:
    """A bridge that holds much is killed, then the queue's leader: the next one knows the same.

    All members of the queue must have given back in the same order what the bridge held.
    """
    bridge = start_bridge(on=cluster, vhost="/")
    bodies = [str(number) for number in range(MANY)]
    with ServiceBusClient.from_connection_string(bridge.connection_string) as client:
        with client.get_queue_sender("load") as sender:
            sender.send_messages([ServiceBusMessage(body) for body in bodies])
        with client.get_queue_receiver("load") as receiver:
            assert receiver.receive_messages(MANY, max_wait_time=1)
    bridge.restart()
    with ServiceBusClient.from_connection_string(bridge.connection_string) as client:
        with client.get_queue_receiver("load") as receiver:
            completed = list(islice(completing(receiver), MANY // 2))
        node = leader(cluster, names.active_queue("load"))
        wait_for_acks(node, names.active_queue("load"), MANY - len(completed))
        node.kill()
        with client.get_queue_receiver("load") as receiver:
            rest = list(completing(receiver))
    assert sorted(completed + rest) == sorted(bodies)


@pytest.mark.soak
def test_what_is_locked_comes_back_when_the_node_dies_while_another_receiver_asks(
    cluster: Broker, start_bridge: StartBridge
) -> None:
    """The queue's leader lives on; it learns of the death before it can carry out the new consume.

    The other members of the queue stand still meanwhile. A channel that consumes a second time has
    RabbitMQ 4.3.6 keep what it held.
    """
    bridge = start_bridge(on=cluster, vhost="/")
    assert cluster.cluster is not None
    ours, leading, third = cluster.cluster.nodes
    member = f"'%2F_{names.active_queue('load')}'"
    bodies = [str(number) for number in range(FEW)]
    with ServiceBusClient.from_connection_string(bridge.connection_string) as client:
        with client.get_queue_sender("load") as sender:
            sender.send_messages([ServiceBusMessage(body) for body in bodies])
        with client.get_queue_receiver("load") as receiver, ThreadPoolExecutor() as at_once:
            assert len(receiver.receive_messages(FEW // 2, max_wait_time=5)) == FEW // 2
            lead(cluster, names.active_queue("load"), ours, leading)
            for node in (ours, third):
                node.rabbitmqctl("eval", f"sys:suspend({member}).")
            asking = client.get_queue_receiver("load")
            answer = at_once.submit(asking.receive_messages, FEW, max_wait_time=1)
            is_written = partial(third.rabbitmqctl, "eval", WRITTEN % member)
            wait_for("the consume", lambda: "true" in is_written(), within_s=120)
            ours.kill()
            others = partial(leading.rabbitmqctl, "eval", "nodes().")
            wait_for("the death", lambda: ours.name not in others(), within_s=120)
            third.rabbitmqctl("eval", f"sys:resume({member}).")
            answer.exception()
    with (
        ServiceBusClient.from_connection_string(bridge.connection_string) as client,
        client.get_queue_receiver("load") as receiver,
    ):
        assert sorted(completing(receiver)) == sorted(bodies)


@pytest.mark.soak
def test_what_is_locked_is_not_lost_when_its_leader_loses_sight_of_the_bridge_s_node(
    cluster: Broker, start_bridge: StartBridge
) -> None:
    """RabbitMQ brings it again to who asks; he has nothing of it while it is locked."""
    bridge = start_bridge(on=cluster, vhost="/")
    assert cluster.cluster is not None
    ours, leading, _ = cluster.cluster.nodes
    bodies = [str(number) for number in range(FEW // 2)]
    with ServiceBusClient.from_connection_string(bridge.connection_string) as client:
        with (
            client.get_queue_sender("load") as sender,
            client.get_queue_receiver("load") as receiver,
            client.get_queue_receiver("load") as asking,
            AutoLockRenewer() as renewer,
            ThreadPoolExecutor() as at_once,
        ):
            lead(cluster, names.active_queue("load"), ours, leading)
            sender.send_messages([ServiceBusMessage(body) for body in bodies])
            locked = list(islice(receiving(receiver), len(bodies)))
            for message in locked:
                renewer.register(receiver, message)
            answer = at_once.submit(asking.receive_messages, 1, max_wait_time=120)
            assert "true" in leading.rabbitmqctl("eval", LOSE_SIGHT % ours.name)
            sender.send_messages(ServiceBusMessage("last"))
            (last,) = answer.result()
            assert str(last) == "last"
            asking.complete_message(last)
            for message in locked:
                receiver.abandon_message(message)
        with client.get_queue_receiver("load") as receiver:
            assert sorted(completing(receiver)) == sorted(bodies)
