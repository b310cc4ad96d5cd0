"""The supervisor: work that ends is begun again, and named."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from bridge.background.errors import OutsideError
from bridge.background.supervisor import FAILURES_MAX, STEADY_S, Standing, Supervisor
from bridge.background.tasks import Tasks

WAIT_S = 120.0


class Clock:
    """A clock that is put by hand."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Runs:
    """Work whose runs end as the test wants.

    Attributes:
        begun: the runs so far.
    """

    def __init__(self) -> None:
        self.begun = 0
        self._end: asyncio.Future[None] | None = None
        self._has_begun = asyncio.Condition()

    async def __call__(self) -> None:
        """Run until `end`."""
        self.begun += 1
        self._end = asyncio.get_running_loop().create_future()
        async with self._has_begun:
            self._has_begun.notify_all()
        await self._end

    def end(self, error: BaseException | None = None) -> None:
        """End the present run, by an error or a return."""
        if error is None:
            self._end.set_result(None)
        else:
            self._end.set_exception(error)

    def cancel(self) -> None:
        """Cancel what the present run waits for."""
        self._end.cancel()

    async def reach(self, count: int) -> None:
        """Wait until so many runs have begun."""
        async with asyncio.timeout(WAIT_S), self._has_begun:
            await self._has_begun.wait_for(lambda: self.begun >= count)


Keep = Callable[..., Standing]


@pytest.fixture
def clock() -> Clock:
    """The supervisor's clock."""
    return Clock()


@pytest.fixture
def supervisor(clock: Clock) -> Supervisor:
    """A supervisor of nothing."""
    return Supervisor(clock)


@pytest.fixture
async def keep(supervisor: Supervisor) -> AsyncIterator[Keep]:
    """Keep work with short pauses, until the test's end."""
    kept: list[Standing] = []

    def make(work: Callable[[], Awaitable[None]], **options: object) -> Standing:
        kept.append(supervisor.keep("test", work, pause_min_s=0.001, pause_max_s=0.002, **options))
        return kept[-1]

    yield make
    for one in kept:
        one.task.cancel()
    await asyncio.gather(*(one.task for one in kept), return_exceptions=True)


@pytest.mark.parametrize("end", ["return", "error", "unknown error", "cancelled from within"])
async def test_work_that_ends_is_begun_again(
    supervisor: Supervisor, keep: Keep, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log, health and a metric name it, and its error."""
    runs = Runs()
    one = keep(runs)
    await runs.reach(1)
    match end:
        case "return":
            runs.end()
        case "error":
            runs.end(OutsideError("refused"))
        case "unknown error":
            runs.end(KeyError("orders"))
        case _:
            runs.cancel()
    await runs.reach(2)
    assert supervisor.failures["test"] == 1
    assert supervisor.warnings == [one.sentence]
    assert supervisor.reasons == []
    [record] = [each for each in caplog.records if each.message.startswith("background.ended")]
    assert (record.exc_info is None) == (end in ("error", "return"))


async def test_work_that_fails_again_and_again_makes_the_bridge_unready(
    supervisor: Supervisor, keep: Keep
) -> None:
    """A fault of one entity's work stays a warning: another bridge could do no better."""
    ours, of_one = Runs(), Runs()
    keep(ours)
    keep(of_one, subject="orders")
    for number in range(FAILURES_MAX):
        for runs in (ours, of_one):
            await runs.reach(number + 1)
            runs.end(OutsideError("refused"))
    await ours.reach(FAILURES_MAX + 1)
    await of_one.reach(FAILURES_MAX + 1)
    assert supervisor.reasons == ["'test' has failed 3 times and is begun again: refused."]
    assert supervisor.warnings == ["'test orders' has failed 3 times and is begun again: refused."]


async def test_work_that_runs_again_for_a_while_is_sound(
    supervisor: Supervisor, keep: Keep, clock: Clock
) -> None:
    """Health says no more of it."""
    runs = Runs()
    keep(runs)
    await runs.reach(1)
    runs.end()
    await runs.reach(2)
    clock.now_s += STEADY_S - 0.1
    assert supervisor.warnings
    clock.now_s += 0.2
    assert not supervisor.warnings


async def test_its_owner_ends_work_by_cancelling_it(supervisor: Supervisor, keep: Keep) -> None:
    """Then it is not begun again, nor counted, though it swallows the cancellation."""

    async def deaf() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            return

    for work in (Runs(), deaf):
        one = keep(work)
        await asyncio.sleep(0)
        one.task.cancel()
        async with asyncio.timeout(WAIT_S):
            await asyncio.wait((one.task,))
        assert one not in supervisor.standing
    assert not supervisor.failures


async def test_work_may_end_when_it_says_so(supervisor: Supervisor, keep: Keep) -> None:
    """By a return or an error: what ends rightly is not begun again."""
    for error in (None, OutsideError("closing")):
        runs = Runs()
        one = keep(runs, may_end=lambda: True)
        await runs.reach(1)
        runs.end(error)
        async with asyncio.timeout(WAIT_S):
            await one.task
        assert runs.begun == 1
    assert not supervisor.failures


async def test_an_error_that_makes_going_on_senseless_ends_the_process(
    supervisor: Supervisor, keep: Keep
) -> None:
    """Waiting callers get the error too, those that began before and those that begin after."""
    runs = Runs()
    keep(runs, is_final=lambda error: isinstance(error, PermissionError))
    await runs.reach(1)
    waiting = asyncio.create_task(supervisor.until(asyncio.Event().wait()))
    await asyncio.sleep(0)
    runs.end(PermissionError("wrong password"))
    async with asyncio.timeout(WAIT_S):
        with pytest.raises(PermissionError, match="wrong password"):
            await waiting
        with pytest.raises(PermissionError, match="wrong password"):
            await supervisor.until(asyncio.Event().wait())
    assert runs.begun == 1


async def test_what_was_waited_for_is_returned(supervisor: Supervisor) -> None:
    """As long as nothing has ended the process."""

    async def answer() -> int:
        return 42

    assert await supervisor.until(answer()) == 42


async def test_one_shot_work_that_fails_is_named_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With a traceback, unless the cause is outside of the bridge."""
    caplog.set_level(logging.INFO)
    tasks = Tasks()

    async def fail(error: Exception) -> None:
        raise error

    for error in (KeyError("orders"), OutsideError("refused")):
        tasks.start(fail(error), name="one shot")
    async with asyncio.timeout(WAIT_S):
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)
    assert not tasks
    said = [(each.getMessage(), each.exc_info is None) for each in caplog.records]
    assert said == [
        ("background.failed task=one shot error='orders'", False),
        ("background.failed task=one shot error=refused", True),
    ]
