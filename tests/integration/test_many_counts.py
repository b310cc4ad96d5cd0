"""Counts of many queues, asked ahead of the answers, from a broker that answers by a script."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pamqp.commands as spec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.broker import ready_counts
from bridge.broker.connection.connection import Connection
from bridge.broker.errors import BrokerError, BrokerSilent
from bridge.broker.ready_counts import ReadyCounts
from tests.integration.scripted_broker import Peer, scripted_broker

WAITS_S = 0.02
"""In place of RabbitMQ's 250 ms; a silent queue takes a little more."""

LOCKED = -1


@contextmanager
def waiting_shortly() -> Iterator[None]:
    """RabbitMQ waits for a silent queue only so long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ready_counts, "WAITS_S", WAITS_S)
        yield


@dataclass
class Queues:
    """The queues of a broker.

    Attributes:
        ready: their messages; `None` of one that does not exist, `LOCKED` of one that is exclusive
            to another connection.
        silent: how many more times each one does not answer RabbitMQ.
        asked: how often each one was asked.
    """

    ready: dict[str, int | None]
    silent: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    channels: int = 0

    async def serve(self, peer: Peer) -> None:
        """Answer a client; the questions of a channel one after another."""
        await peer.log_in()
        channels: dict[int, asyncio.Queue[str]] = {}
        works: set[asyncio.Task[None]] = set()
        try:
            while True:
                frame = await peer.read()
                number = peer.channel
                match frame:
                    case spec.Channel.Open():
                        peer.send(spec.Channel.OpenOk(), number)
                        self.channels += 1
                        channels[number] = asyncio.Queue()
                        work = self._answer(peer, number, channels[number])
                        works.add(asyncio.ensure_future(work))
                    case spec.Channel.Close():
                        channels.pop(number, None)
                        peer.send(spec.Channel.CloseOk(), number)
                    case spec.Queue.Declare() if number in channels:
                        channels[number].put_nowait(frame.queue)
                    case spec.Connection.Close():
                        peer.send(spec.Connection.CloseOk(), 0)
                        return
        finally:
            for each in works:
                each.cancel()

    async def _answer(self, peer: Peer, channel: int, asked: asyncio.Queue[str]) -> None:
        while True:
            queue = await asked.get()
            self.asked[queue] += 1
            ready = self.ready[queue]
            if ready is None:
                peer.send(spec.Channel.Close(404, f"no queue '{queue}'", 50, 10), channel)
                return  # and answers nothing that follows on this channel
            if ready == LOCKED:
                peer.send(spec.Channel.Close(405, f"'{queue}' is locked", 50, 10), channel)
                return
            if self.silent[queue]:
                self.silent[queue] -= 1
                await asyncio.sleep(WAITS_S * 1.2)
                ready = 0
            peer.send(spec.Queue.DeclareOk(queue, ready, 0), channel)


QUEUES = st.dictionaries(
    st.integers(0, 400).map(lambda number: f"queue-{number}"),
    st.tuples(
        st.one_of(st.none(), st.just(LOCKED), st.just(0), st.integers(1, 9)),
        st.sampled_from((0,) * 20 + (1, 2, 1_000)),
    ),
    max_size=60,
)


@settings(max_examples=30, deadline=None)
@given(QUEUES)
def test_every_queue_has_its_count_or_none_and_never_a_wrong_zero(
    queues: dict[str, tuple[int | None, int]],
) -> None:
    """Some are missing, some exclusive, some silent for a while or for good, beside others."""
    asyncio.run(_count(queues))


async def _count(queues: dict[str, tuple[int | None, int]]) -> None:
    there = Queues({name: ready for name, (ready, _) in queues.items()})
    there.silent.update({name: silent for name, (_, silent) in queues.items()})
    with waiting_shortly():
        async with scripted_broker(there.serve) as endpoint:
            connection = await Connection.open(endpoint, name="test")
            counts = ReadyCounts(connection)
            await counts.ask(queues)
            await connection.close()
    for name, (ready, silent) in queues.items():
        if ready is None:
            assert counts.of(name) == 0
        elif ready == LOCKED or silent > ready_counts.ASKS:
            with pytest.raises(BrokerSilent):
                counts.of(name)
        elif name in counts.known:  # on a slow machine one that answers may seem silent
            assert counts.of(name) == ready
        assert there.asked[name] <= 1 + ready_counts.ASKS + sum(
            other in (None, LOCKED) for other, _ in queues.values()
        )


async def test_a_silent_queue_does_not_hide_the_counts_of_three_hundred() -> None:
    """The queues behind it on its channel are asked again; all others once."""
    names = [f"queue-{number}" for number in range(300)]
    there = Queues(dict.fromkeys(names, 0))
    there.silent["queue-100"] = 1_000
    async with scripted_broker(there.serve) as endpoint:
        connection = await Connection.open(endpoint, name="test")
        counts = ReadyCounts(connection)
        with waiting_shortly():
            await counts.ask(names)
        await connection.close()
    assert counts.known.keys() == set(names) - {"queue-100"}
    assert there.channels <= ready_counts.CHANNELS


async def test_a_lost_channel_is_an_error_and_no_count() -> None:
    """The caller is told, and unanswered queues have no count."""

    async def serve(peer: Peer) -> None:
        await peer.log_in()
        await peer.open_channel()
        await peer.expect(spec.Queue.Declare)
        peer.send(spec.Queue.DeclareOk("a", 3, 0))
        peer.send(spec.Channel.Close(541, "INTERNAL_ERROR", 50, 10))
        with contextlib.suppress(ConnectionError):
            await peer.expect(spec.Channel.CloseOk)

    async with scripted_broker(serve) as endpoint:
        connection = await Connection.open(endpoint, name="test")
        counts = ReadyCounts(connection)
        with pytest.raises(BrokerError):
            await counts.ask(["a", "b"])
        assert counts.of("a") == 3
        with pytest.raises(BrokerSilent):
            counts.of("b")
        await connection.close()


async def test_what_a_young_connection_is_told_may_be_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who pauses before a second count has one that is not."""
    monkeypatch.setattr(ready_counts, "OLD_S", 0.5)
    async with scripted_broker(Queues({"orders": 3}).serve) as endpoint:
        connection = await Connection.open(endpoint, name="test")
        first, second = ReadyCounts(connection), ReadyCounts(connection)
        await first.ask(["orders"])
        await first.pause(0)
        await second.ask(["orders"])
        assert (first.may_be_old, second.may_be_old) == (True, False)
        await connection.close()
