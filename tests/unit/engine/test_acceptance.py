"""The next session of several shards: one receiver each, and what is given back was never taken.

Shards are machines of sessions here, behind queues in both directions: a test says what arrives
when. What asks them is the engine's own.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.engine.api import Received, ReceiveMode
from bridge.engine.sessions import acceptance
from bridge.engine.sessions.acceptance import Acceptance
from bridge.engine.sessions.events import Event, SessionGiven, SessionLost, SessionRefused
from bridge.engine.sessions.location import Location, done
from bridge.engine.sessions.receiver import SessionReceiver
from bridge.machine.queue.fate import Rules
from bridge.machine.queue.memory_budget import MemoryBudget
from bridge.machine.queue.settled import SettledMemory
from bridge.machine.sessions import effects as fx
from bridge.machine.sessions.entry import SessionEntry
from bridge.machine.sessions.sessions import Sessions
from bridge.model.errors import OperationTimeout, ServerBusy, SessionCannotBeLocked
from bridge.model.name import EntityPath
from bridge.wire.sessions import Key
from tests.fixtures.examples import examples

PATH = EntityPath("orders")
NOW_MS = 1_000
SHARDS = 3


class Shard(Location):
    """An owner; `is_here`: it answers at once, as one in the same process does."""

    def __init__(self, world: World, *, is_here: bool) -> None:
        self.machine: Sessions[str] = Sessions(
            MemoryBudget(1 << 20),
            SettledMemory().numbers(),
            lock_duration_ms=60_000,
            rules=Rules(10),
        )
        self.is_here = is_here
        self.asked = 0
        self.holders: dict[str, Key] = {}
        self.to_owner: deque[Callable[[], None]] = deque()
        self.to_receivers: deque[tuple[Key, Event]] = deque()
        self._world = world

    def accept(self, key: Key, session_id: str | None, *, deletes: bool) -> None:
        """Ask for a session."""
        self.asked += 1
        self._say(lambda: self._do(self.machine.accept(key, session_id, now_ms=NOW_MS)))

    def close(self, key: Key, *, unused: bool) -> Awaitable[None]:
        """Give a session, or the wait, up."""

        def close() -> None:
            held = [each for each, holder in self.holders.items() if holder == key]
            for session_id in held:
                del self.holders[session_id]
            self._do(self.machine.close(key, now_ms=NOW_MS, unused=unused))

        self._say(close)
        return done()

    def _say(self, what: Callable[[], None]) -> None:
        self.to_owner.append(what)
        if self.is_here:
            self.hear()

    def hear(self) -> None:
        """The owner hears the next thing that it was told."""
        if self.to_owner:
            self.to_owner.popleft()()

    def tell(self) -> None:
        """A receiver hears the next thing that the owner has said."""
        if self.to_receivers:
            key, event = self.to_receivers.popleft()
            receiver = self._world.receivers.get(key)
            if receiver is not None:
                receiver.on_event(event)

    def send(self, session_id: str) -> None:
        """A message comes."""
        number = next(self._world.numbers)
        place = SessionEntry(number, b"%d" % number, 0, None, session_id, number, "body", 10)
        self._do(self.machine.arrived(place, now_ms=NOW_MS))

    def _do(self, effects: list[fx.Effect]) -> None:
        for effect in effects:
            match effect:
                case fx.Given(receiver, session_id, until_ms):
                    assert session_id not in self.holders, "one receiver a session"
                    self.holders[session_id] = receiver
                    self.to_receivers.append((receiver, SessionGiven(session_id, until_ms)))
                case fx.RefuseSession(receiver):
                    self.to_receivers.append((receiver, SessionRefused()))
                case fx.LockExpired(receiver):
                    self.to_receivers.append((receiver, SessionLost(has_moved=True)))
                case _:
                    raise AssertionError(f"{effect} of what nobody has had")
            if self.is_here:
                self.tell()


class World:
    """Shards, and clients that want the next session."""

    def __init__(self, here: int) -> None:
        self.numbers = itertools.count(1)
        self.keys = itertools.count(1)
        self.receivers: dict[Key, SessionReceiver] = {}
        self.shards = [Shard(self, is_here=at < here) for at in range(SHARDS)]
        self.waits: list[asyncio.Task[SessionReceiver]] = []
        self.failures: dict[int, Exception] = {}

    def client(
        self, session_id: str | None = None, *, lead_elsewhere: bool = False, shards: int = SHARDS
    ) -> asyncio.Task[SessionReceiver]:
        """Begin to wait for a session."""
        candidates = []
        for shard in range(shards):
            key = b"me", next(self.keys)
            receiver = self.receivers[key] = SessionReceiver(
                key,
                PATH,
                shard,
                ReceiveMode.PEEK_LOCK,
                _no_message,
                _not_lost,
                on_closed=partial(self._forget, key),
                on_undeliverable=lambda path, received, error: None,
            )
            candidates.append(receiver)
        accepting = Acceptance(
            candidates, session_id, find=self._find, owned=self._owned, moved=lambda each: None
        )
        wait = asyncio.ensure_future(accepting.wait(lead_elsewhere=lead_elsewhere))
        self.waits.append(wait)
        return wait

    async def _find(self, candidate: SessionReceiver) -> Location:
        if candidate.shard in self.failures:
            raise self.failures[candidate.shard]
        return self.shards[candidate.shard]

    def _owned(self, candidate: SessionReceiver) -> Location | None:
        shard = self.shards[candidate.shard]
        return shard if shard.is_here else None

    def _forget(self, key: Key, receiver: SessionReceiver) -> None:
        del self.receivers[key]

    @property
    def given(self) -> list[SessionReceiver]:
        """What clients have."""
        have = [
            each.result()
            for each in self.waits
            if each.done() and not each.cancelled() and each.exception() is None
        ]
        return [each for each in have if each.key in self.receivers]

    async def settle(self) -> None:
        """All that is said is heard."""
        for _ in range(20):
            for shard in self.shards:
                while shard.to_owner or shard.to_receivers:
                    shard.hear()
                    shard.tell()
            await asyncio.sleep(0)

    def check(self) -> None:
        """A session is one client's at most, and its shard agrees."""
        held = [(each.shard, each.session_id) for each in self.given]
        assert len(set(held)) == len(held)
        for receiver in self.given:
            holder = self.shards[receiver.shard].holders.get(receiver.session_id)
            assert holder == receiver.key


def _no_message(received: Received) -> None:
    raise AssertionError("nobody has asked for a message")


def _not_lost(error: Exception) -> None:
    raise AssertionError(f"nobody has lost a session: {error}")


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 8)),
        st.tuples(st.just("wait"), st.booleans()),
        st.tuples(st.just("hear"), st.integers(0, SHARDS - 1)),
        st.tuples(st.just("tell"), st.integers(0, SHARDS - 1)),
        st.tuples(st.just("cancel"), st.integers(0, 5)),
        st.tuples(st.just("close"), st.integers(0, 5)),
    ),
    max_size=40,
)


@settings(max_examples=examples(150))
@given(STEPS, st.integers(0, SHARDS))
def test_a_session_has_one_receiver_and_a_grant_that_is_given_back_leaves_no_trace(
    steps: list[tuple[str, int]], here: int
) -> None:
    """In each order of events: a late receiver has never had it, and nothing is left locked."""
    asyncio.run(_run(steps, here))


async def _run(steps: list[tuple[str, int]], here: int) -> None:
    world = World(here)
    sent = set()
    for what, index in steps:
        match what:
            case "send":
                sent.add((index % SHARDS, f"s{index}"))
                world.shards[index % SHARDS].send(f"s{index}")
            case "wait":
                world.client(lead_elsewhere=bool(index))
            case "hear":
                world.shards[index].hear()
            case "tell":
                world.shards[index].tell()
            case "cancel" if world.waits:
                world.waits[index % len(world.waits)].cancel()
            case "close" if world.given:
                await world.given[index % len(world.given)].close()
        for _ in range(4):
            await asyncio.sleep(0)
        world.check()
    for wait in world.waits:
        wait.cancel()
    await asyncio.gather(*world.waits, return_exceptions=True)
    await world.settle()
    world.check()
    given = {(each.shard, each.session_id) for each in world.given}
    locked = {(at, each) for at, shard in enumerate(world.shards) for each in shard.holders}
    assert locked == given, "what was given back is free"
    assert [len(each.machine.holders) for each in world.shards] == [
        len(each.holders) for each in world.shards
    ]
    assert not any(each.machine._supply.receivers for each in world.shards)
    free = sent - given
    more = [world.client() for _ in free]
    await world.settle()
    assert {(wait.result().shard, wait.result().session_id) for wait in more} == free


async def test_what_is_given_back_is_the_next_one_again() -> None:
    """It does not go behind sessions that came later."""
    world = World(here=0)
    shard = world.shards[0]
    for each in ("early", "late"):
        shard.send(each)
    world.shards[1].send("other")
    first = world.client()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    world.shards[1].hear()
    world.shards[1].tell()
    assert (await first).session_id == "other"
    await world.settle()
    again = world.client(shards=1)
    await world.settle()
    assert (await again).session_id == "early"


async def test_a_shard_that_is_owned_here_is_preferred() -> None:
    """Others are not even asked, but for now and then."""
    world = World(here=1)
    for shard in world.shards:
        shard.send(f"of {world.shards.index(shard)}")
    assert (await world.client()).session_id == "of 0"
    assert [shard.asked for shard in world.shards] == [1, 0, 0]
    led = world.client(lead_elsewhere=True)
    for _ in range(4):
        await asyncio.sleep(0)
    await world.settle()
    assert (await led).session_id == "of 1"


async def test_a_shard_without_an_answer_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only when none answers is the client told that RabbitMQ is busy."""
    monkeypatch.setattr(acceptance, "AGAIN_S", 0.001)
    world = World(here=0)
    world.failures = {0: ServerBusy("dead"), 2: OperationTimeout("late")}
    world.shards[1].send("a")
    wait = world.client()
    await asyncio.sleep(0.01)
    await world.settle()
    assert (await wait).session_id == "a"
    world.failures = dict.fromkeys(range(SHARDS), ServerBusy("dead"))
    with pytest.raises(ServerBusy):
        await world.client()


async def test_a_named_session_that_is_anothers_is_refused() -> None:
    """At once."""
    world = World(here=1)
    world.shards[0].send("a")
    assert (await world.client("a", shards=1)).session_id == "a"
    with pytest.raises(SessionCannotBeLocked):
        await world.client("a", shards=1)
