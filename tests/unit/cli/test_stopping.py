"""The drain: how long a stop waits for clients, and what ends the wait."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest

from bridge.cli.stopping import Stopping


@pytest.fixture
async def stopping() -> AsyncIterator[Stopping]:
    """A handler of this process's signals, after the start."""
    handler = Stopping()
    handler.started()
    yield handler
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().remove_signal_handler(number)


async def test_it_waits_until_all_have_finished(stopping: Stopping) -> None:
    """It looks once at least."""
    looks = iter((True, True, False))
    os.kill(os.getpid(), signal.SIGTERM)
    await stopping.wait()

    await stopping.drain(lambda now_s: next(looks), 60)

    assert stopping.is_asked
    assert next(looks, None) is None


async def test_it_waits_no_longer_than_it_may(stopping: Stopping) -> None:
    """The wait ends after its limit, though messages are still worked on."""
    await stopping.drain(lambda now_s: True, 0.1)


@pytest.mark.parametrize(
    "signals",
    [
        (signal.SIGINT,),
        (signal.SIGTERM, signal.SIGTERM),
        (signal.SIGTERM, signal.SIGINT),
    ],
)
async def test_ctrl_c_or_a_second_signal_ends_it(
    stopping: Stopping, signals: tuple[signal.Signals, ...]
) -> None:
    """The second one also while it waits."""
    for number in signals[:-1]:
        os.kill(os.getpid(), number)
        await stopping.wait()
    draining = asyncio.create_task(stopping.drain(lambda now_s: True, 3_600))
    os.kill(os.getpid(), signals[-1])

    await asyncio.wait_for(draining, 120)
