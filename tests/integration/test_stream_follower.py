"""Following a stream from its present end on: every entry is read once, in order."""

from __future__ import annotations

import asyncio

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.streams.stream_reader import StreamEntry, StreamFollower
from bridge.topology import names, parts
from bridge.wire.basic import Properties

STREAM = names.journal("orders")
BARE = Properties(delivery_mode=2).encode()


async def publish(channel: Channel, *bodies: bytes) -> None:
    """Publish entries, confirmed."""
    waits = (channel.publisher.publish_confirmed("", STREAM, BARE, body) for body in bodies)
    await asyncio.gather(*waits)


async def test_each_read_has_what_was_published_since_the_last_one(
    connection: Connection, confirming: Channel
) -> None:
    """This holds however much others publish before, between and behind two reads."""
    await confirming.declarations.declare_queue(parts.journal("orders"))

    await publish(confirming, b"before")
    async with StreamFollower.open(connection, STREAM) as follower:
        for turn, others in enumerate([0, 3, 0, 2_500, 1]):
            theirs = [b"%d of %d" % (number, turn) for number in range(others)]
            own = b"own %d" % turn
            await publish(confirming, *theirs)

            def is_own(entry: StreamEntry, own: bytes = own) -> bool:
                return entry.body == own

            async def mine(own: bytes = own) -> None:
                await publish(confirming, own, b"behind")

            read = await follower.read_to_own(mine, is_own)
            expected = [*([b"behind"] if turn else []), *theirs, own]
            assert [each.body for each in read] == expected
            assert [each.offset for each in read] == sorted({each.offset for each in read})
