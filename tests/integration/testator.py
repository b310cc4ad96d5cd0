"""A process that leaves wills, and is killed.

    python -m tests.integration.testator AMQP_URL QUEUE

Of four channels each bequeaths a message to the queue; then one withdraws it, one leaves another
instead, and one is closed. Consumes the queue `alive`, publishes a last message, and is killed when
that is confirmed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from bridge.broker.connection import Connection
from bridge.broker.endpoint import parse_url
from bridge.broker.keeper import Keeper
from bridge.wire.basic import Properties

PLAIN = Properties(delivery_mode=2).encode()


async def main(url: str, queue: str) -> None:
    """Leave wills and die."""
    connection = await Connection.open(parse_url(url), name="testator")
    keeper = Keeper()
    keeper.start()
    connection.keep(keeper, is_direct=False)
    await keeper.holds_all.wait()
    names = ("left", "withdrawn", "replaced", "closed")
    channels = {name: await connection.channel() for name in names}
    for name, channel in channels.items():
        channel.bequeath("", queue, PLAIN, name.encode())
    channels["withdrawn"].withdraw()
    channels["replaced"].bequeath("", queue, PLAIN, b"instead")
    await channels["closed"].close()
    last = channels["left"]
    await last.consume("alive", lambda delivery: None)
    await last.confirm_select()
    await last.publish_confirmed("", queue, PLAIN, b"last")
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
