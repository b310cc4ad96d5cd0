"""The supervisor: all work that is meant to run for as long as its owner stands under it.

    running ──error, return──► pausing ──0.2 s to 5 s──► running
       │                          └── named in the log, in health, and in a metric
       └── an error after which going on makes no sense ──► the process ends with it

An owner ends its work by cancelling the task. Work that ends by itself otherwise is begun again,
whatever its error was.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from bridge.background.errors import EndedEarly, trace_of
from bridge.background.retry import GrowingWait, OnFailed, retry
from bridge.background.waits import Waits

PAUSE_MIN_S = 0.2
PAUSE_MAX_S = 5.0
"""The longest pause before work is begun again."""

STEADY_S = 10.0
"""Work that has run for this long since its last failure is sound again."""

FAILURES_MAX = 3
"""Number of failures in a row from which on the bridge is not ready; fewer are a warning."""

Result = TypeVar("Result")

log = logging.getLogger(__name__)


class Standing:
    """A piece of work under the supervisor.

    Attributes:
        is_named: whether health names its failures.
        kind: the work's name, the same for all its subjects.
        subject: the entity or connection that it works for; empty for work of the whole process.
        failures: the number of failures in a row.
        error: the last failure, or `None`.
        begun_s: when it began to run; `None` while it pauses.
        task: the task that runs it; to be cancelled and awaited by the work's owner.
    """

    def __init__(self, kind: str, subject: str, *, is_named: bool = True) -> None:
        self.is_named = is_named
        self.kind = kind
        self.subject = subject
        self.failures = 0
        self.error: BaseException | None = None
        self.begun_s: float | None = None
        self.task: asyncio.Task[None]

    def __repr__(self) -> str:
        return f"Standing({self.name!r}, {self.failures} failures)"

    @property
    def name(self) -> str:
        """The kind and the subject."""
        return f"{self.kind} {self.subject}".rstrip()

    @property
    def sentence(self) -> str:
        """What health says of it."""
        error = str(self.error) or repr(self.error)
        return f"{self.name!r} has failed {self.failures} times and is begun again: {error}."


class Supervisor:
    """Begins work again that has ended, and says so.

    Args:
        clock: a monotonic time in seconds.

    Attributes:
        waits: what waits in this process.
        failures: the count of failures by kind of work.
        standing: the work that stands under the supervisor now.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.waits = Waits(clock)
        self.failures: Counter[str] = Counter()
        self.standing: dict[Standing, None] = {}
        self._clock = clock
        self._final: BaseException | None = None
        self._is_over = asyncio.Event()

    def __repr__(self) -> str:
        return f"Supervisor({len(self.standing)} standing, {len(self.failing)} failing)"

    def keep(
        self,
        kind: str,
        work: Callable[[], Awaitable[None]],
        *,
        subject: str = "",
        may_end: Callable[[], bool] = lambda: False,
        is_final: Callable[[BaseException], bool] = lambda error: False,
        pause_min_s: float = PAUSE_MIN_S,
        pause_max_s: float = PAUSE_MAX_S,
        on_failed: OnFailed | None = None,
        is_named: bool = True,
    ) -> Standing:
        """Run work until its task is cancelled; begin it again whenever it ends.

        Args:
            kind: the work's name: few and fixed, a label of a metric.
            work: is called for each run.
            subject: the entity or connection that it works for.
            may_end: whether work that has ended has ended rightly.
            is_final: whether going on makes no sense after an error: the process ends with it.
            pause_min_s: the shortest pause before the next run.
            pause_max_s: the longest one.
            on_failed: called after a failure, instead of naming it in the log.
            is_named: whether health names a failure; otherwise the owner does.
        """

        async def run() -> None:
            await _alone(work)
            if not may_end():
                raise EndedEarly("it has returned")

        return self._stand(
            Standing(kind, subject, is_named=is_named),
            run,
            lambda error: may_end(),
            is_final,
            GrowingWait(pause_min_s, pause_max_s, steady_s=STEADY_S),
            on_failed,
        )

    def repeat(
        self,
        kind: str,
        work: Callable[[], Awaitable[None]],
        *,
        subject: str = "",
        pause_min_s: float = PAUSE_MIN_S,
        pause_max_s: float = PAUSE_MAX_S,
        on_failed: OnFailed | None = None,
    ) -> Standing:
        """Run work until it returns, or its task is cancelled; begin it again after each error.

        The arguments are those of `keep`.
        """
        return self._stand(
            Standing(kind, subject),
            partial(_alone, work),
            lambda error: False,
            lambda error: False,
            GrowingWait(pause_min_s, pause_max_s, steady_s=STEADY_S),
            on_failed,
        )

    def _stand(
        self,
        one: Standing,
        run: Callable[[], Awaitable[None]],
        is_over: Callable[[BaseException], bool],
        is_final: Callable[[BaseException], bool],
        pauses: GrowingWait,
        on_failed: OnFailed | None,
    ) -> Standing:
        async def once() -> None:
            pauses.begin()
            one.begun_s = self._clock()
            try:
                await run()
            finally:
                one.begun_s = None

        def is_retryable(error: BaseException) -> bool:
            return isinstance(error, Exception) and not is_over(error) and not is_final(error)

        def failed(error: BaseException, failures: int, pause_s: float) -> None:
            self.failures[one.kind] += 1
            one.error, one.failures = error, failures
            if on_failed is not None:
                on_failed(error, failures, pause_s)
            else:
                trace = trace_of(error)
                log.log(
                    logging.WARNING if trace is None else logging.ERROR,
                    "background.ended task=%r wait_s=%.1f error=%s",
                    *(one.name, pause_s, str(error) or repr(error)),
                    exc_info=trace,
                )

        async def repeated() -> None:
            try:
                await retry(once, wait_s=pauses, retryable=is_retryable, on_failed=failed)
            except Exception as error:
                if not is_over(error):
                    self.failures[one.kind] += 1
                    self._final = self._final or error
                    self._is_over.set()

        one.task = asyncio.get_running_loop().create_task(repeated(), name=one.name)
        self.standing[one] = None
        one.task.add_done_callback(lambda task: self.standing.pop(one, None))
        return one

    def note_unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Count and log an error of a callback, or of a task whose error nobody has seen.

        The handler for `loop.set_exception_handler`.
        """
        self.failures["unhandled"] += 1
        loop.default_exception_handler(context)

    async def until(self, condition: Coroutine[Any, Any, Result]) -> Result:
        """Wait for a condition.

        Raises:
            Exception: the error of work after which going on makes no sense, if it comes earlier.
        """
        waiting = asyncio.ensure_future(condition)
        over = asyncio.ensure_future(self._is_over.wait())
        try:
            await asyncio.wait((waiting, over), return_when=asyncio.FIRST_COMPLETED)
            if self._final is not None:
                raise self._final
            return await waiting
        finally:
            for each in (waiting, over):
                each.cancel()
            await asyncio.gather(waiting, over, return_exceptions=True)

    @property
    def failing(self) -> list[Standing]:
        """The work that pauses after a failure, or has not run for `STEADY_S` since."""
        before_s = self._clock() - STEADY_S
        return [
            one
            for one in self.standing
            if one.is_named
            and one.error is not None
            and (one.begun_s is None or one.begun_s > before_s)
        ]

    @property
    def reasons(self) -> list[str]:
        """A sentence for each work of the whole process that fails again and again."""
        return [
            one.sentence for one in self.failing if one.failures >= FAILURES_MAX and not one.subject
        ]

    @property
    def warnings(self) -> list[str]:
        """A sentence for each other work that has failed."""
        reasons = self.reasons
        return [one.sentence for one in self.failing if one.sentence not in reasons]


async def _alone(work: Callable[[], Awaitable[None]]) -> None:
    """Run work once.

    Raises:
        EndedEarly: a cancellation has ended it that was not the task's.
        CancelledError: the task is cancelled, though the work may have swallowed that.
    """
    task = asyncio.current_task()
    assert task is not None
    try:
        await work()
    except asyncio.CancelledError as error:
        if not task.cancelling():
            raise EndedEarly("it was cancelled from within") from error
        raise
    if task.cancelling():
        raise asyncio.CancelledError
