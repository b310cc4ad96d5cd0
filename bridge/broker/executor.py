"""Publishes what a killed process left to be said.

    python -m bridge.broker.executor

The keeper starts it. It reads lines: an endpoint, messages, an empty one; then it connects, says a
byte when RabbitMQ has answered, reads another empty line when the messages' time has come, and
publishes them. Without that line it does nothing. Ends with 0 when RabbitMQ has confirmed all.
"""

from __future__ import annotations

import asyncio
import sys

from bridge.broker.connection import Connection
from bridge.broker.endpoint import Endpoint
from bridge.broker.errors import BrokerError
from bridge.broker.will import decode

NAME = "busbridge keeper"


async def main() -> int:
    """Return the process' exit code."""
    read = sys.stdin.buffer.readline
    lines = []
    while (line := read()) != b"\n":
        if not line:
            return 1
        lines.append(line)
    endpoint, publishes = Endpoint.decode(lines[0]), [decode(line) for line in lines[1:]]
    try:
        connection = await Connection.open(endpoint, name=NAME)
        channel = await connection.channel()
        await channel.confirm_select()
        sys.stdout.buffer.write(b".")
        sys.stdout.buffer.flush()
        if await asyncio.to_thread(read) != b"\n":
            return 1
        await asyncio.gather(*(channel.publish_confirmed(*each) for each in publishes))
        await connection.close()
    except BrokerError:
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
