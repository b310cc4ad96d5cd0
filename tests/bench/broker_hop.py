"""From one quorum queue to another, with a stamped header: the client's hot path, beside pika's.

    python -m tests.bench.broker_hop amqp://guest:guest@localhost:5672 [--count N] [--profile]

Each message (1 KiB) is consumed, published with two more headers, confirmed, and acked.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import sys
import time

import pika
import pika.spec

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.delivery import Delivery
from bridge.broker.connection.endpoint import parse_url
from bridge.broker.errors import BrokerError
from bridge.broker.handover import HandOver, Publish
from bridge.wire.basic import Properties, encode_fields, long, with_fields
from tests.bench.figure import Figure, compare, report

SITE = "bench.hop"
SOURCE, EXCHANGE, TARGET, JOURNAL = "bench.in", "bench.active", "bench.out", "bench.journal"
QUORUM = {"x-queue-type": "quorum", "x-delivery-limit": 2_147_483_647}
BODY = bytes(1_024)
PLAIN = Properties(
    content_type="text/plain", delivery_mode=2, message_id="0", headers={"app": long(7)}
).encode()


async def prepare(channel: Channel, count: int, *, with_stream: bool) -> None:
    """Declare queues and fill the source."""
    await clean(channel)
    await channel.declarations.declare_queue(SOURCE, arguments=QUORUM)
    await channel.declarations.declare_queue(TARGET, arguments=QUORUM)
    await channel.declarations.declare_exchange(EXCHANGE, "fanout")
    await channel.declarations.bind_queue(TARGET, EXCHANGE)
    if with_stream:
        await channel.declarations.declare_queue(JOURNAL, arguments={"x-queue-type": "stream"})
        await channel.declarations.bind_queue(JOURNAL, EXCHANGE)
    handover = HandOver(channel)
    for start in range(0, count, 1_000):
        size = min(1_000, count - start)
        await handover.move([Publish("", SOURCE, PLAIN, BODY)] * size, failpoint=SITE)


async def clean(channel: Channel) -> None:
    """Delete what the benchmark declares."""
    for queue in (SOURCE, TARGET, JOURNAL):
        await channel.declarations.delete_queue(queue)
    await channel.declarations.delete_exchange(EXCHANGE)


async def hop(connection: Connection, count: int, prefetch: int) -> float:
    """Hop with the bridge's client; return messages a second."""
    channel = await connection.channel()
    await channel.publisher.confirm_select()
    await channel.consumers.qos(prefetch)
    handover = HandOver(channel)
    finished = asyncio.Event()
    done_count = number = 0
    now_ms = int(time.time() * 1_000)

    def done(error: BrokerError | None) -> None:
        nonlocal done_count
        assert error is None, error
        done_count += 1
        if done_count == count:
            finished.set()

    def on_delivery(delivery: Delivery) -> None:
        nonlocal number
        number += 1
        stamp = {"x-opt-sequence-number": long(number), "x-opt-enqueued-time": long(now_ms)}
        properties = with_fields(delivery.properties, encode_fields(stamp))
        publish = Publish(EXCHANGE, "", properties, delivery.body)
        acks = ((channel, delivery.tag),)
        handover.submit((publish,), acks=acks, done=done, failpoint=SITE)

    start_s = time.perf_counter()
    await channel.consumers.consume(SOURCE, on_delivery)
    await asyncio.wait_for(finished.wait(), 300)
    await channel.barrier()
    rate = count / (time.perf_counter() - start_s)
    await channel.close()
    return rate


def pika_hop(url: str, count: int, prefetch: int) -> float:
    """Hop with pika's callbacks; return messages a second."""
    waiting: dict[int, int] = {}
    state = {"number": 0, "done": 0, "start": 0.0, "end": 0.0}
    now_ms = int(time.time() * 1_000)

    def on_open(connection: pika.SelectConnection) -> None:
        connection.channel(on_open_callback=on_channel)

    def on_channel(channel: pika.channel.Channel) -> None:
        channel.confirm_delivery(lambda frame: on_confirm(channel, frame))
        channel.basic_qos(prefetch_count=prefetch)
        state["start"] = time.perf_counter()
        channel.basic_consume(SOURCE, on_message)

    def on_message(
        channel: pika.channel.Channel,
        method: pika.spec.Basic.Deliver,
        properties: pika.BasicProperties,
        body: bytes,
    ) -> None:
        state["number"] += 1
        waiting[int(state["number"])] = method.delivery_tag
        headers = properties.headers
        headers["x-opt-sequence-number"] = int(state["number"])
        headers["x-opt-enqueued-time"] = now_ms
        channel.basic_publish(EXCHANGE, "", body, properties, mandatory=True)

    def on_confirm(channel: pika.channel.Channel, frame: pika.frame.Method) -> None:
        assert isinstance(frame.method, pika.spec.Basic.Ack)
        upto = frame.method.delivery_tag
        numbers = [upto]
        if frame.method.multiple:
            numbers = [number for number in waiting if number <= upto]
        for number in numbers:
            channel.basic_ack(waiting.pop(number))
        state["done"] += len(numbers)
        if state["done"] == count:
            state["end"] = time.perf_counter()
            channel.connection.close()

    connection = pika.SelectConnection(
        pika.URLParameters(url),
        on_open_callback=on_open,
        on_close_callback=lambda connection, reason: connection.ioloop.stop(),
    )
    connection.ioloop.start()
    return count / (state["end"] - state["start"])


async def measure(url: str, count: int, prefetch: int, rounds: int) -> list[Figure]:
    """Measure with and without a stream bound, each client by turns."""
    connection = await Connection.open(parse_url(url), name="bench")
    version = str(connection.server_properties["version"])
    channel = await connection.channel()
    await channel.publisher.confirm_select()
    figures = []
    for with_stream in (False, True):
        ours, peers = [], []
        for _ in range(rounds):
            await prepare(channel, count, with_stream=with_stream)
            ours.append(await hop(connection, count, prefetch))
            await prepare(channel, count // 2, with_stream=with_stream)
            peers.append(await asyncio.to_thread(pika_hop, url, count // 2, prefetch))
        name = f"hop with confirm, {'quorum + stream' if with_stream else 'quorum'}"
        figures.append(compare(name, "msg/s", ours, peers, peer="pika", rabbitmq=version))
    await clean(channel)
    await connection.close()
    return figures


async def profile(url: str, count: int, prefetch: int) -> None:
    """Print where the time goes."""
    connection = await Connection.open(parse_url(url), name="bench")
    channel = await connection.channel()
    await channel.publisher.confirm_select()
    await prepare(channel, count, with_stream=False)
    profiler = cProfile.Profile()
    profiler.enable()
    cpu_s = time.process_time()
    await hop(connection, count, prefetch)
    cpu_s = time.process_time() - cpu_s
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
    print(f"{cpu_s / count * 1e6:.1f} us of processor time a message, profiler included")
    await clean(channel)
    await connection.close()


def main(arguments: list[str]) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--count", type=int, default=60_000)
    parser.add_argument("--prefetch", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", action="store_true")
    chosen = parser.parse_args(arguments)
    if chosen.profile:
        asyncio.run(profile(chosen.url, chosen.count, chosen.prefetch))
        return
    figures = asyncio.run(measure(chosen.url, chosen.count, chosen.prefetch, chosen.rounds))
    report("Broker hop", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
