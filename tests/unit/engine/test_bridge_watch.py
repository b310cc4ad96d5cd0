"""Bridges for which something is kept, until they are gone."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.background.supervisor import Supervisor
from bridge.broker.errors import BrokerError, ConnectionLost, PublishRefused, Unroutable
from bridge.engine import bridge_watch
from bridge.engine.bridge_watch import BridgeWatch
from bridge.model.errors import OperationTimeout, ServerBusy
from bridge.wire.reply import Done

BRIDGES = (b"first", b"second")


class Others:
    """The other bridges: each answers, is slow, or is gone."""

    def __init__(self) -> None:
        self.asked = 0
        self.errors: dict[bytes, Exception] = {}

    async def ask(self, bridge: bytes, question: Any) -> Done:
        """Answer as a bridge does."""
        self.asked += 1
        await asyncio.sleep(0)
        if (error := self.errors.get(bridge)) is not None:
            raise error
        return Done()


async def rounds(count: int = 5) -> None:
    """Let each bridge be asked again."""
    for _ in range(20 * count):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no time between two questions."""
    monkeypatch.setattr(bridge_watch, "WATCH_S", 0)


KEPT = st.tuples(st.sampled_from(BRIDGES), st.integers(0, 3))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), KEPT),
        st.tuples(st.just("end"), KEPT),
        st.tuples(st.just("slow"), st.tuples(st.sampled_from(BRIDGES), st.just(0))),
        st.tuples(st.just("gone"), st.tuples(st.sampled_from(BRIDGES), st.just(0))),
        st.tuples(st.just("pass"), st.tuples(st.sampled_from(BRIDGES), st.integers(0, 40))),
    ),
    max_size=30,
)
SLOW = (OperationTimeout("slow"), ServerBusy("busy"), ConnectionLost(text="here"))
GONE = (Unroutable(text="gone"), PublishRefused(text="its node is down"))


@given(steps=STEPS, slow=st.sampled_from(SLOW), gone=st.sampled_from(GONE))
def test_all_that_is_kept_for_a_bridge_is_told_once_that_it_is_gone(
    steps: list[tuple[str, tuple[bytes, int]]], slow: Exception, gone: BrokerError
) -> None:
    """Whatever comes in between; what is kept no more is not told, nor is a slow bridge gone."""

    async def play() -> None:
        others = Others()
        watch = BridgeWatch(cast(Any, others), Supervisor())
        lost: list[bytes] = []
        watch.on_gone.append(lost.append)
        kept: set[tuple[bytes, int]] = set()
        are_gone: set[bytes] = set()

        def told(one: tuple[bytes, int]) -> None:
            assert one in kept
            assert one[0] in are_gone
            assert one[0] in lost
            kept.remove(one)

        for what, (bridge, number) in steps:
            if what == "begin" and (bridge, number) not in kept:
                one = bridge, number
                kept.add(one)
                watch.begin(bridge, number, lambda one=one: told(one))  # type: ignore[misc]
            elif what == "end":
                kept.discard((bridge, number))
                watch.end(bridge, number)
            elif what == "slow" and bridge not in are_gone:
                others.errors[bridge] = slow
            elif what == "gone":
                are_gone.add(bridge)
                others.errors[bridge] = gone
            for _ in range(number if what == "pass" else 0):
                await asyncio.sleep(0)
        await rounds()
        assert not any(bridge in are_gone for bridge, _ in kept)
        for bridge, number in list(kept):
            watch.end(bridge, number)
        await rounds()
        asked = others.asked
        await rounds()
        assert others.asked == asked, "nothing is kept for any bridge"
        await watch.close()

    asyncio.run(play())


async def test_what_waits_is_not_asked_for_when_the_bridge_stops() -> None:
    """A watch that is closed asks nobody."""
    others = Others()
    watch = BridgeWatch(cast(Any, others), Supervisor())
    watch.begin(b"first", 1, lambda: None)
    await rounds()
    assert others.asked
    await watch.close()
    asked = others.asked
    await rounds()
    assert others.asked == asked
