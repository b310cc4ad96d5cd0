"""Work that is done once for all who ask at the same time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.background.shared import Shared
from tests.fixtures.waiting import until


class Failed(Exception):
    """What a run fails with."""


@dataclass
class Work:
    """Runs that end when they are told to.

    Attributes:
        begun: each run's items, in order of the runs.
    """

    begun: list[list[int]] = field(default_factory=list)
    under_way: int = 0
    at_once: int = 0
    end: asyncio.Future[bool] | None = None

    async def run(self, items: list[int]) -> int:
        """Return the number of this run."""
        number = len(self.begun)
        self.begun.append(items)
        self.under_way += 1
        self.at_once = max(self.at_once, self.under_way)
        self.end = asyncio.get_running_loop().create_future()
        try:
            if await self.end:
                raise Failed(number)
        finally:
            self.under_way -= 1
        return number


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.lists(st.integers(0, 5), max_size=3)),
        st.tuples(st.just("turn"), st.none()),
        st.tuples(st.just("end"), st.booleans()),
        st.tuples(st.just("cancel"), st.integers(0, 20)),
    ),
    max_size=40,
)


@given(STEPS)
def test_every_caller_has_one_run_that_began_after_its_question_and_had_its_items(
    steps: list[tuple[str, object]],
) -> None:
    """Callers may fail or be cancelled; there is one run at a time, and none without a caller."""
    asyncio.run(_play(steps))


async def _play(steps: list[tuple[str, object]]) -> None:
    work = Work()
    shared = Shared(work.run)
    asked: list[tuple[asyncio.Task[int], list[int]]] = []
    cancelled = set()
    begun_before: dict[int, int] = {}

    async def ask(number: int, items: list[int]) -> int:
        begun_before[number] = len(work.begun)
        return await shared.of(items)

    for step, value in steps:
        if step == "ask":
            assert isinstance(value, list)
            asked.append((asyncio.ensure_future(ask(len(asked), value)), value))
        elif step == "turn":
            await asyncio.sleep(0)
        elif step == "end" and work.end is not None and not work.end.done():
            work.end.set_result(bool(value))
        elif step == "cancel" and asked:
            assert isinstance(value, int)
            task = asked[value % len(asked)][0]
            if task.cancel():
                cancelled.add(task)
    while not all(task.done() for task, _ in asked) or work.under_way:
        if work.end is not None and not work.end.done():
            work.end.set_result(False)
        await asyncio.sleep(0)
    assert work.at_once <= 1
    runs = set()
    for number, (task, items) in enumerate(asked):
        if task in cancelled and task.cancelled():
            continue
        error = task.exception()
        run = error.args[0] if isinstance(error, Failed) else task.result()
        assert run >= begun_before[number], "the run began before the question"
        assert set(items) <= set(work.begun[run])
        runs.add(run)
    assert sorted(item for run in work.begun for item in run) == sorted(
        item for at in begun_before for item in asked[at][1]
    )
    assert len(work.begun) <= len(asked)
    if not cancelled:
        assert runs == set(range(len(work.begun)))


async def test_ten_who_ask_at_once_cost_one_run() -> None:
    """And ten more during it cost one more, all together."""
    work = Work()
    shared = Shared(work.run)
    first = [asyncio.ensure_future(shared.of([each])) for each in range(10)]
    await until(lambda: bool(work.begun))
    more = [asyncio.ensure_future(shared.of([each])) for each in range(10)]
    while not all(task.done() for task in (*first, *more)):
        if work.end is not None and not work.end.done():
            work.end.set_result(False)
        await asyncio.sleep(0)
    assert [task.result() for task in (*first, *more)] == [0] * 10 + [1] * 10
    assert work.begun == [list(range(10)), list(range(10))]


async def test_what_fails_fails_for_all_its_callers_and_for_no_later_one() -> None:
    """A later question is a new run."""
    work = Work()
    shared = Shared(work.run)
    both = [asyncio.ensure_future(shared.of()) for _ in range(2)]
    await until(lambda: bool(work.begun))
    assert work.end is not None
    work.end.set_result(True)
    for each in both:
        with pytest.raises(Failed):
            await each
    later = asyncio.ensure_future(shared.of())
    await until(lambda: len(work.begun) == 2)
    work.end.set_result(False)
    assert await later == 1
