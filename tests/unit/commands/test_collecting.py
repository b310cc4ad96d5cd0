"""Batches of messages that come in their own time account for every message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.commands.batching import Batching, Numbered
from bridge.commands.collecting import collected
from bridge.commands.message_source import LineRefused
from bridge.remote.message import RemoteMessage
from tests.fixtures.examples import examples

LINGER_S = 0.001
PAUSES_S = {"at once": None, "soon": 0.0, "late": 0.004}


@settings(max_examples=examples(60), deadline=None)
@given(
    pauses=st.lists(st.sampled_from(sorted(PAUSES_S)), max_size=12),
    size=st.integers(1, 4),
    skipped=st.integers(0, 5),
    stopped_at=st.none() | st.integers(0, 12),
    fails=st.booleans(),
)
def test_whenever_messages_come_each_is_in_one_batch(
    pauses: list[str], size: int, skipped: int, stopped_at: int | None, fails: bool
) -> None:
    """In order, behind those that are skipped; what follows a stop is in none."""
    total, found = len(pauses), []
    has_failed, is_closed = False, False

    async def messages(asked: asyncio.Event) -> AsyncGenerator[Numbered, None]:
        nonlocal is_closed
        try:
            for at, pause in enumerate(pauses, 1):
                if PAUSES_S[pause] is not None:
                    await asyncio.sleep(PAUSES_S[pause])
                if stopped_at == at - 1:
                    asked.set()
                yield Numbered(at, "", RemoteMessage.of(data=b"a"))
            if fails:
                raise LineRefused("no message", total + 1)
        finally:
            is_closed = True

    async def run() -> bool:
        nonlocal has_failed
        asked = asyncio.Event()
        try:
            async for batch in collected(
                messages(asked), Batching(0, size), asked, skipped=skipped, linger_s=LINGER_S
            ):
                assert 1 <= len(batch) <= size
                found.extend(each.number for each in batch)
        except LineRefused:
            has_failed = True
        return asked.is_set()

    is_stopped = asyncio.run(run())
    assert found == list(range(skipped + 1, skipped + 1 + len(found)))
    if is_stopped:
        assert not has_failed
        assert len(found) <= max(0, (stopped_at or 0) - skipped)
    else:
        assert found == list(range(skipped + 1, total + 1))
        assert has_failed is fails
    assert is_closed or not pauses


def test_a_message_that_nothing_follows_is_sent_before_the_input_ends() -> None:
    """A line from a terminal is sent though the input goes on."""

    async def run() -> None:
        more = asyncio.Event()

        async def messages() -> AsyncGenerator[Numbered, None]:
            yield Numbered(1, "", RemoteMessage.of(data=b"a"))
            await more.wait()

        batches = collected(messages(), Batching(0), asyncio.Event(), linger_s=LINGER_S)
        async with asyncio.timeout(120):
            (first,) = await anext(batches)
            assert first.number == 1
            more.set()
            assert [batch async for batch in batches] == []

    asyncio.run(run())
