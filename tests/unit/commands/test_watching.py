"""Reads that are made again and again, until a signal comes."""

from __future__ import annotations

import asyncio

import pytest

from bridge.commands.watching import repeat

WITHIN_S = 120


class Source:
    """What is read: each read waits until it is let go on."""

    def __init__(self) -> None:
        self.begun: list[float] = []
        self.under_way = self.most = 0
        self.has_begun = asyncio.Event()
        self.go_on = asyncio.Event()

    async def read(self) -> int:
        self.begun.append(asyncio.get_running_loop().time())
        self.has_begun.set()
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await self.go_on.wait()
        finally:
            self.under_way -= 1
        return len(self.begun)


async def test_it_ends_after_so_many_reads() -> None:
    """Each is shown, once."""
    source, shown = Source(), []
    source.go_on.set()
    async with asyncio.timeout(WITHIN_S):
        await repeat(source.read, shown.append, asked=asyncio.Event(), interval_s=0, count=3)
    assert shown == [1, 2, 3]


async def test_a_slow_answer_leaves_out_intervals_and_none_piles_up() -> None:
    """A read that takes several intervals is the only one, and what was missed is not made up."""
    source, shown = Source(), []
    work = asyncio.ensure_future(
        repeat(source.read, shown.append, asked=asyncio.Event(), interval_s=0.1, count=2)
    )
    async with asyncio.timeout(WITHIN_S):
        await source.has_begun.wait()
        asyncio.get_running_loop().call_later(0.55, source.go_on.set)
        await work
    assert (shown, source.most) == ([1, 2], 1)
    assert source.begun[1] - source.begun[0] > 0.55


async def test_who_asks_for_the_end_does_not_wait_for_a_read() -> None:
    """It is given up, and nothing of it is shown."""
    source, shown, asked = Source(), [], asyncio.Event()
    work = asyncio.ensure_future(repeat(source.read, shown.append, asked=asked, interval_s=0.1))
    async with asyncio.timeout(WITHIN_S):
        await source.has_begun.wait()
        asked.set()
        await work
    assert (shown, source.under_way) == ([], 0)


async def test_who_asks_for_the_end_in_a_pause_has_no_read_more() -> None:
    """Nor does it wait for the pause's end."""
    source, asked = Source(), asyncio.Event()
    work = asyncio.ensure_future(repeat(source.read, print, asked=asked, interval_s=3_600))
    await asyncio.sleep(0)
    asked.set()
    async with asyncio.timeout(WITHIN_S):
        await work
    assert source.begun == []


async def test_an_error_of_a_read_ends_it() -> None:
    """It is the command's error."""

    async def read() -> None:
        raise OSError("refused")

    with pytest.raises(OSError, match="refused"):
        await repeat(read, print, asked=asyncio.Event(), interval_s=0)
