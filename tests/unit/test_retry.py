"""Retrying: what is tried again, how often, and when."""

from __future__ import annotations

import asyncio

import pytest

from bridge.background.retry import GrowingWait, retry


class Flaky:
    """Work that fails so many times."""

    def __init__(self, failures: int, error: type[Exception] = OSError) -> None:
        self.attempts = 0
        self._failures = failures
        self._error = error

    async def __call__(self) -> int:
        """Fail, or return how often it was tried."""
        self.attempts += 1
        if self.attempts <= self._failures:
            raise self._error(f"attempt {self.attempts}")
        return self.attempts


def is_os_error(error: BaseException) -> bool:
    """What is retried here."""
    return isinstance(error, OSError)


async def at_once(wait_s: float) -> None:
    """Wait for nothing."""


async def test_work_is_done_again_until_it_succeeds() -> None:
    """Each failure is told, with how many there were in a row."""
    told: list[tuple[str, int]] = []
    work = Flaky(3)

    done = await retry(
        work,
        wait_s=0.1,
        retryable=is_os_error,
        sleep=at_once,
        on_failed=lambda error, failures, wait_s: told.append((str(error), failures)),
    )

    assert done == 4
    assert told == [("attempt 1", 1), ("attempt 2", 2), ("attempt 3", 3)]


async def test_an_error_that_no_retry_helps_against_is_raised_at_once() -> None:
    """The caller gets the error itself."""
    work = Flaky(3, ValueError)
    with pytest.raises(ValueError, match="attempt 1"):
        await retry(work, wait_s=0, retryable=is_os_error, sleep=at_once)
    assert work.attempts == 1


async def test_the_last_error_is_raised_when_the_time_is_over() -> None:
    """No attempt is made after it."""
    work = Flaky(1_000_000)
    with pytest.raises(OSError, match=r"attempt \d+"):
        await retry(work, wait_s=0, retryable=is_os_error, sleep=asyncio.sleep, total_s=0.01)


async def test_waits_grow_and_are_short_again_after_work_that_lasted() -> None:
    """At most the longest, at least the shortest."""
    now_s = 0.0
    waits = GrowingWait(0.1, 5, steady_s=10, clock=lambda: now_s)
    waited: list[float] = []
    counted: list[int] = []

    async def work() -> None:
        nonlocal now_s
        waits.begin()
        now_s += 11 if len(waited) == 8 else 9
        if len(waited) < 9:
            raise OSError

    async def sleep(wait_s: float) -> None:
        waited.append(wait_s)

    await retry(
        work,
        wait_s=waits,
        retryable=is_os_error,
        sleep=sleep,
        on_failed=lambda error, failures, wait_s: counted.append(failures),
    )

    assert all(0.1 <= wait_s <= 5 for wait_s in waited)
    assert counted == [1, 2, 3, 4, 5, 6, 7, 8, 1]
    assert waited[8] <= 0.2


async def test_the_first_attempt_fails_like_any_other() -> None:
    """Its error is told, and counted, once; work that succeeds at once hears nothing of that."""
    told: list[str] = []
    for failures in (0, 1):
        work = Flaky(failures)
        await retry(
            work,
            wait_s=0,
            retryable=is_os_error,
            sleep=at_once,
            on_failed=lambda error, count, wait_s: told.append(f"{error} {count}"),
        )
        assert work.attempts == failures + 1
    assert told == ["attempt 1 1"]
