"""How a bridge begins to hold a session entity: after its predecessor, and with everything."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bridge.engine.garbage import rare_collections
from bridge.engine.receiving.intake import Intake
from bridge.engine.sessions.windows import Windows

LOOK_S = 0.05

GONE_S = 5.0
"""A predecessor's consumers are gone within this time; those that stay are natives'."""

SETTLE_S = 3.0
"""After a failure of RabbitMQ what was never delivered may come before what was held."""


async def take_over(
    resource: str,
    windows: Windows,
    *,
    intake: Intake,
    has_been_lost: bool,
    begin: Callable[[], Awaitable[None]],
    arrived: Callable[[], int],
) -> int:
    """Consume a queue; returns when all that is in it has come, with the count of natives.

    RabbitMQ gives back what a channel held when it takes the channel's consumer off: when the queue
    has no consumers, all its messages are ready.

    Args:
        has_been_lost: this process has lost a channel before.
        begin: begins to consume.
        arrived: returns how many messages have come since.

    Raises:
        BrokerError: RabbitMQ does not answer.
    """
    loop = asyncio.get_running_loop()
    channel = await intake.channel()
    since_s = loop.time()
    state = await channel.declarations.declare_queue(resource, passive=True)
    while state.consumers and loop.time() - since_s < GONE_S:
        await asyncio.sleep(LOOK_S)
        state = await channel.declarations.declare_queue(resource, passive=True)
    if loop.time() - since_s > LOOK_S:  # a predecessor's other channels end in the same moment
        await asyncio.sleep(LOOK_S)
        state = await channel.declarations.declare_queue(resource, passive=True)
    natives, waiting = state.consumers, state.messages
    since_s = loop.time()
    with rare_collections():
        await begin()
        while arrived() < waiting and not (windows.is_full and state.messages):
            await asyncio.sleep(LOOK_S)
            state = await channel.declarations.declare_queue(resource, passive=True)
            if not state.messages:
                # What is ours is on its way; of the rest somebody else has taken some.
                await windows.catch_up()
                break
    if has_been_lost:
        await asyncio.sleep(max(since_s + SETTLE_S - loop.time(), 0))
    await channel.close()
    return natives
