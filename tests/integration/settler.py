"""A process that settles messages, is told that this is sure, and is killed at that instant.

    python -m tests.integration.settler AMQP_URL QUEUE COUNT

Its keeper also holds a second connection, as a bridge's does: so it looks whether RabbitMQ answers.
Takes twice `COUNT` messages, says so, and waits for the end of its standard input. Then acks every
other one, and dies when it is sure of that, with more deliveries on their way that it never reads.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from bridge.broker.connection import Connection
from bridge.broker.delivery import Delivery
from bridge.broker.endpoint import parse_url
from bridge.broker.errors import BrokerError
from bridge.broker.keeper import Keeper


async def main(url: str, queue: str, count: int) -> None:
    """Settle and die."""
    connection = await Connection.open(parse_url(url), name="settler")
    keeper = Keeper()
    keeper.start()
    connection.keep(keeper)
    beside = await Connection.open(parse_url(url), name="beside")
    beside.keep(keeper, is_direct=False)
    channel = await connection.channel()
    await keeper.holds_all.wait()
    taken: list[Delivery] = []
    done = asyncio.Event()

    def take(delivery: Delivery) -> None:
        taken.append(delivery)
        if len(taken) == 2 * count:
            done.set()

    def die(error: BrokerError | None) -> None:
        assert error is None
        os.kill(os.getpid(), signal.SIGKILL)

    await channel.qos(3 * count)
    await channel.consume(queue, take)
    await done.wait()
    print("taken", flush=True)
    sys.stdin.read()
    for delivery in taken[: 2 * count : 2]:
        channel.ack(delivery.tag)
    channel.when_sure(die)
    await asyncio.Event().wait()


if __name__ == "__main__":
    arguments = sys.argv[1:]
    asyncio.run(main(*arguments[:2], int(arguments[2])))
