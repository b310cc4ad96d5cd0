"""The library on RabbitMQ, beside plain pika and plain aio-pika that do the same work.

Publishes with confirms, and receiving with a prefetch of 100 and single acks. Rounds alternate;
medians are compared.

    python -m tests.bench.library [--rabbitmq TREE]...
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable

import aio_pika
import pika

import bridge.client.aio
from bridge.broker.node.private import Node
from bridge.client import ServiceBusClient, ServiceBusMessage
from tests.bench.figure import Figure, compare
from tests.bench.rabbit import report_each
from tests.bench.server import bridge_server

ROUNDS = 3
BATCH = 100
BODY = b"x" * 1024
FLOOR = 0.7

COUNTS = {"single": 600, "batch": 10_000, "receive": 3_000}
NAMES = {
    "single": "single sends",
    "batch": "sends of 100",
    "receive": "receive 100 + complete each",
}

Work = Callable[[str, str, int], float]
"""Does so much work on a queue; returns the seconds that it took."""


def main() -> int:
    """Measure, print, and return the exit code."""
    return report_each("Library on RabbitMQ", _measure)


def _measure(node: Node) -> list[Figure]:
    host, port = node.endpoint.hosts[0]
    url = f"amqp://guest:guest@{host}:{port}"
    lanes: dict[str, tuple[Work, Work]] = {
        "pika": (_pika, _plain_pika),
        "aio-pika": (_on_loop(_aio), _on_loop(_plain_aio)),
    }
    queues = [f"{scenario}-{lane}" for scenario in COUNTS for lane in lanes]
    where = ("--rabbitmq-url", url, "--management-url", node.management_url)
    figures = []
    with bridge_server(queues, *where) as server:
        for scenario, count in COUNTS.items():
            for lane, (ours, peers) in lanes.items():
                samples: dict[Work, list[float]] = {ours: [], peers: []}
                for _ in range(ROUNDS):
                    for work in (ours, peers):
                        queue = f"{scenario}-{lane}"
                        if scenario == "receive":
                            _fill(url, queue, count)
                        samples[work].append(count / work(url, queue, count))
                figures.append(
                    compare(
                        f"{NAMES[scenario]} on {lane}",
                        "msg/s",
                        samples[ours],
                        samples[peers],
                        peer=f"plain {lane}",
                        floor=FLOOR,
                        rabbitmq=server.rabbitmq_version,
                    )
                )
    return figures


def _fill(url: str, queue: str, count: int) -> None:
    """Have exactly so many messages in a queue."""
    with ServiceBusClient(url) as client, client.get_queue_sender(queue) as sender:
        for _ in range(count // BATCH):
            sender.send_messages([ServiceBusMessage(BODY) for _ in range(BATCH)])
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    while channel.queue_declare(queue, passive=True).method.message_count < count:
        time.sleep(0.05)
    connection.close()


def _pika(url: str, queue: str, count: int) -> float:
    with ServiceBusClient(url) as client:
        if queue.startswith("receive"):
            with client.get_queue_receiver(queue) as receiver:
                begin, done = time.perf_counter(), 0
                while done < count:
                    messages = receiver.receive_messages(BATCH, max_wait_time=10)
                    for message in messages:
                        receiver.complete_message(message)
                    done += len(messages)
                return time.perf_counter() - begin
        with client.get_queue_sender(queue) as sender:
            begin = time.perf_counter()
            if queue.startswith("single"):
                for _ in range(count):
                    sender.send_messages(ServiceBusMessage(BODY))
            else:
                for _ in range(count // BATCH):
                    sender.send_messages([ServiceBusMessage(BODY) for _ in range(BATCH)])
            return time.perf_counter() - begin


def _plain_pika(url: str, queue: str, count: int) -> float:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    properties = pika.BasicProperties(delivery_mode=2)
    begin = time.perf_counter()
    if queue.startswith("receive"):
        channel.basic_qos(prefetch_count=BATCH)
        for done, (method, _, _) in enumerate(channel.consume(queue), 1):
            channel.basic_ack(method.delivery_tag)
            if done == count:
                break
    else:
        channel.confirm_delivery()
        for _ in range(count):
            channel.basic_publish(queue, "", BODY, properties, mandatory=True)
    took_s = time.perf_counter() - begin
    connection.close()
    return took_s


async def _aio(url: str, queue: str, count: int) -> float:
    async with bridge.client.aio.ServiceBusClient(url) as client:
        if queue.startswith("receive"):
            async with client.get_queue_receiver(queue) as receiver:
                begin, done = time.perf_counter(), 0
                while done < count:
                    messages = await receiver.receive_messages(BATCH, max_wait_time=10)
                    for message in messages:
                        await receiver.complete_message(message)
                    done += len(messages)
                return time.perf_counter() - begin
        async with client.get_queue_sender(queue) as sender:
            begin = time.perf_counter()
            if queue.startswith("single"):
                for _ in range(count):
                    await sender.send_messages(ServiceBusMessage(BODY))
            else:
                for _ in range(count // BATCH):
                    await sender.send_messages([ServiceBusMessage(BODY) for _ in range(BATCH)])
            return time.perf_counter() - begin


async def _plain_aio(url: str, queue: str, count: int) -> float:
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        begin = time.perf_counter()
        if queue.startswith("receive"):
            await channel.set_qos(prefetch_count=BATCH)
            done = 0
            async with (await channel.get_queue(queue)).iterator() as messages:
                async for message in messages:
                    await message.ack()
                    done += 1
                    if done == count:
                        return time.perf_counter() - begin
        exchange = await channel.get_exchange(queue)
        made = [aio_pika.Message(BODY, delivery_mode=2) for _ in range(BATCH)]
        if queue.startswith("single"):
            for _ in range(count):
                await exchange.publish(aio_pika.Message(BODY, delivery_mode=2), "")
        else:
            for _ in range(count // BATCH):
                await asyncio.gather(*(exchange.publish(each, "") for each in made))
        return time.perf_counter() - begin


def _on_loop(work: Callable[..., object]) -> Work:
    return lambda url, queue, count: asyncio.run(work(url, queue, count))  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(main())
