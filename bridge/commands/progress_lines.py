"""Progress of a long work where standard error is no terminal: a line now and then."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from bridge.commands.output import Progress

EVERY_S: Final = 10.0


class ProgressLines:
    """Says every ten seconds how far a work is, if it has come further meanwhile.

    Args:
        progress: how far it is.
        text: what is being done.
        say: writes a line.
    """

    def __init__(
        self,
        progress: Progress,
        text: str,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._progress = progress
        self._text = text
        self._say = say
        self._clock = clock
        self._began_s = clock()
        self._said = 0
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._again()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _again(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(EVERY_S, self._tick)

    def _tick(self) -> None:
        if self._progress.done != self._said:
            self._said = self._progress.done
            self._say(self.line())
        self._again()

    def line(self) -> str:
        """Return how far it is, with the rate and, where the whole is known, the time that remains.

        The rate is that of the whole time.
        """
        done, total = self._progress.done, self._progress.total
        rate = done / max(self._clock() - self._began_s, 0.001)
        if not total:
            return f"{self._text}: {done:,}, {rate:,.0f} a second"
        left_s = round(max(0, total - done) / rate) if rate else 0
        minutes, seconds = divmod(left_s, 60)
        hours, minutes = divmod(minutes, 60)
        left = f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
        return (
            f"{self._text}: {done:,} of {total:,} ({100 * done // total} %), {rate:,.0f} a second, "
            f"{left} left"
        )
