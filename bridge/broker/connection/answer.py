"""What is awaited of a channel: answers of RabbitMQ, and what is made of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from bridge.broker.errors import BrokerSilent

Made = TypeVar("Made")


async def arguments_of(answer: asyncio.Future[Any]) -> tuple[Any, ...]:
    """Return the arguments of the method that is the answer."""
    return (await answer).arguments  # type: ignore[no-any-return]


async def done(answer: asyncio.Future[Any]) -> None:
    """Wait for an answer that says nothing."""
    await answer


async def made(arguments: Awaitable[tuple[Any, ...]], make: Callable[..., Made]) -> Made:
    """Return what an answer's arguments make."""
    return make(*await arguments)


async def begun(
    tag: str, answer: asyncio.Future[Any], on_given_up: Callable[[asyncio.Future[Any]], None]
) -> str:
    """Return a consumer's tag when it has begun; call back then if nobody waits any more."""
    try:
        # Before 4.3 a basic.cancel that comes before consume-ok crashes RabbitMQ's channel.
        await asyncio.shield(answer)
    except asyncio.CancelledError:
        answer.add_done_callback(on_given_up)
        raise
    return tag


async def closed(
    lingering: Awaitable[None],
    abandon: Callable[[], asyncio.Future[None] | None],
    timeout_s: float,
    on_silent: Callable[[str], None],
) -> None:
    """Wait, abandon, and wait for the end."""
    await lingering
    closing = abandon()
    if closing is None or closing.done():
        return
    try:
        async with asyncio.timeout(timeout_s):
            await asyncio.shield(closing)
    except TimeoutError:
        text = f"no answer to channel.close within {timeout_s:g} s"
        on_silent(text)
        raise BrokerSilent(text=text) from None


async def drained(
    waiter: asyncio.Future[None], timeout_s: float, forget: Callable[[asyncio.Future[None]], None]
) -> None:
    """Wait until little is unsent."""
    try:
        async with asyncio.timeout(timeout_s):
            await waiter
    except TimeoutError:
        raise BrokerSilent(text=f"RabbitMQ read nothing for {timeout_s:g} s") from None
    finally:
        forget(waiter)
