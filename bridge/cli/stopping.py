"""Orderly stop of the process: signals, the drain, and then less than five seconds in all.

What does not end is named in the log and left behind; the process is gone in the end (`overdue`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from bridge.background import pending
from bridge.broker.errors import BrokerError
from bridge.cli.overdue import Overdue

_log = logging.getLogger("busbridge.serve")

STOP_S = 3.0
"""Time for all parts together, from the drain on; the end of the process itself comes on top."""

STEP_S = 2.0
"""Maximum time for one part; mostly a part takes milliseconds."""

STEP_MIN_S = 0.1
"""Minimum time for a part when earlier parts have used up the time."""

CANCELS_MAX = 10
"""So often a task is cancelled; what then goes on is left behind."""

LOOK_S = 0.05
"""The time between two looks at what clients have to finish."""


class Stopping:
    """Handler of SIGTERM and SIGINT, which gives each part its time to stop.

    A signal during the start cancels the starting task; later it ends `wait`. SIGINT, or a second
    signal, ends the drain as well.

    Args:
        overdue: ends the process when the stop takes too long, from the drain on.
    """

    def __init__(self, overdue: Overdue | None = None) -> None:
        self._overdue = overdue
        self._asked = asyncio.Event()
        self._hurried = asyncio.Event()
        self._deadline_s: float | None = None
        self._starting = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)

    @property
    def left_s(self) -> float:
        """How long the next part may take."""
        now_s = asyncio.get_running_loop().time()
        if self._deadline_s is None:
            self._deadline_s = now_s + STOP_S
            self._count()
        return max(STEP_MIN_S, min(STEP_S, self._deadline_s - now_s))

    def started(self) -> None:
        """Note that the start is over."""
        self._starting = None

    async def wait(self) -> None:
        """Wait for the signal."""
        await self._asked.wait()

    @property
    def is_asked(self) -> bool:
        """Whether a signal has come."""
        return self._asked.is_set()

    async def drain(self, look: Callable[[float], bool], within_s: float) -> None:
        """Let clients finish what they have.

        Args:
            look: called again and again with the loop's time; returns whether to go on waiting.
            within_s: the longest wait.
        """
        loop = asyncio.get_running_loop()
        end_s = loop.time() + within_s
        while not self._hurried.is_set() and look(loop.time()):
            left_s = end_s - loop.time()
            if left_s <= 0:
                _log.info("serve.drained_late seconds=%g", within_s)
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurried.wait(), min(LOOK_S, left_s))

    async def within(self, stop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Stop one part; if the part takes too long, cancel its stop and log a warning."""
        name = getattr(stop, "__qualname__", repr(stop))
        task = asyncio.create_task(stop())
        await asyncio.wait((task,), timeout=self.left_s)
        if not task.done():
            _log.warning("serve.stop_late part=%s", name)
            await _cancel({task}, STEP_MIN_S)
        elif error := task.exception():
            if not isinstance(error, BrokerError):
                raise error
            _log.info("serve.stop part=%s error=%s", name, error)

    async def end(self, *works: asyncio.Task[None]) -> None:
        """Cancel works, with the time of one part for their clean-up."""
        await _cancel(set(works), self.left_s)

    async def ended(self, work: asyncio.Task[None]) -> None:
        """Wait for work that was told to stop; cancel it when it takes too long.

        A cancellation before that would interrupt its clean-up.
        """
        await asyncio.wait((work,), timeout=self.left_s)
        await _cancel({work}, STEP_MIN_S)

    async def end_rest(self) -> None:
        """Cancel all tasks left behind by the parts: the loop would wait for them."""
        self._count()
        for _ in range(CANCELS_MAX):  # one that ends may begin others
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            if not rest or not await _cancel(rest, STEP_MIN_S):
                return

    def _count(self) -> None:
        if self._overdue is not None:
            self._overdue.begin()

    def _on_signal(self, number: signal.Signals) -> None:
        _log.info("serve.stopping")
        if number is signal.SIGINT or self.is_asked:
            self._hurried.set()
        if self._starting is not None:
            self._count()
            self._starting.cancel()
            self._starting = None
        self._asked.set()


async def _cancel(tasks: set[asyncio.Task[Any]], wait_s: float) -> bool:
    """Cancel tasks until all are done, `CANCELS_MAX` times at most; return whether all are.

    A task is cancelled again if its clean-up takes too long, and named if it goes on even so.
    """
    for _ in range(CANCELS_MAX):
        if not tasks:
            return True
        for task in tasks:
            task.cancel()
        done, tasks = await asyncio.wait(tasks, timeout=wait_s)
        wait_s = STEP_MIN_S
        for task in done:
            if not task.cancelled():
                task.exception()  # retrieved, or asyncio would report it
    if tasks:
        _log.warning("serve.stop_stuck tasks=%s", pending.of_tasks(tasks))
    return not tasks
