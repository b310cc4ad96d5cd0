"""Batches of messages that come one by one, each in its own time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from bridge.commands.batching import Batching, Numbered

LINGER_S = 0.05
"""How long a batch waits for the next message: who writes one line wants it sent."""


async def collected(
    messages: AsyncGenerator[Numbered, None],
    batching: Batching,
    asked: asyncio.Event,
    *,
    skipped: int = 0,
    linger_s: float = LINGER_S,
) -> AsyncGenerator[list[Numbered], None]:
    """Yield batches: full ones, and what there is while the next message takes its time.

    A failure of the messages is raised behind those that came before it. When `asked` is set, what
    was not yielded yet is left out, and nothing follows.

    Args:
        messages: closed at the end.
        skipped: the number of the last message that is left out.
    """
    stop = asyncio.ensure_future(asked.wait())
    try:
        while True:
            following = asyncio.ensure_future(anext(messages, None))
            try:
                await asyncio.wait(
                    (following, stop), timeout=linger_s, return_when=asyncio.FIRST_COMPLETED
                )
                if not following.done() and not asked.is_set():
                    if rest := batching.rest():
                        yield rest
                    await asyncio.wait((following, stop), return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not following.done():
                    following.cancel()
                    await asyncio.wait((following,))
            if asked.is_set():
                return
            if following.exception() is not None:
                if rest := batching.rest():
                    yield rest
                following.result()
            numbered = following.result()
            if numbered is None:
                break
            if numbered.number > skipped and (found := batching.add(numbered)):
                yield found
        if rest := batching.rest():
            yield rest
    finally:
        stop.cancel()
        await messages.aclose()
