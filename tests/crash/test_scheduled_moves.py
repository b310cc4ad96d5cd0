"""A move of scheduled messages is killed anywhere: each message is there once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import pytest

from bridge.broker.failpoint import STEPS
from bridge.commands.clock import now_ms
from bridge.operations.changes import scheduled
from bridge.remote.address import RemoteAddress
from bridge.remote.credentials import credential_in
from bridge.remote.errors import RemoteError
from bridge.remote.message import RemoteMessage
from bridge.remote.namespace import RemoteNamespace
from tests.crash.moving_commands import play
from tests.crash.stage import Blow, Stage, cut, kill, kill_bridge
from tests.fixtures.bridge import Bridge, StartBridge

pytestmark = pytest.mark.timeout(900)

QUEUE = "load"
TOGETHER, REQUESTS = 4, 6
"""Messages of a move, and moves."""
DEADLY = 4
"""The arrival at which the leader dies: with moves before it, and behind it."""
DIES_S = 60.0


@pytest.mark.parametrize("blow", [kill, cut, kill_bridge])
@pytest.mark.parametrize(
    "seed",
    [pytest.param(0, marks=pytest.mark.long)]
    + [pytest.param(each, marks=pytest.mark.kills) for each in (1, 2, 3)],
)
def test_a_move_killed_anywhere_leaves_each_message_exactly_once(
    stage: Stage, blow: Blow, seed: int
) -> None:
    """The command, its connections, or the bridge; the same command goes on."""
    play(stage, blow, "schedule move", seed)


class Moving:
    """Moves messages of a bridge, several at a time, until it dies.

    Attributes:
        answered: how many messages the bridge has said to be moved.
    """

    def __init__(self, bridge: Bridge) -> None:
        self.answered = 0
        self.was_ms = now_ms() + 3_600_000
        self.due_ms = self.was_ms + 3_600_000
        self._bridge = bridge
        self._messages = [RemoteMessage.of(data=b"%d" % at) for at in range(TOGETHER * REQUESTS)]

    def _namespace(self) -> RemoteNamespace:
        text = self._bridge.connection_string
        return RemoteNamespace(RemoteAddress.of(text), credential_in(text))

    async def schedule(self) -> Sequence[int]:
        """Schedule the messages, and return their numbers."""
        async with self._namespace() as namespace:
            management = await namespace.management(QUEUE)
            return await management.schedule(
                [scheduled(each, self.was_ms) for each in self._messages]
            )

    async def move(self, numbers: Sequence[int]) -> None:
        """Move them, some at a time, until the bridge dies."""
        later = [scheduled(each, self.due_ms) for each in self._messages]
        with contextlib.suppress(RemoteError):
            async with self._namespace() as namespace:
                management = await namespace.management(QUEUE)
                for at in range(0, len(numbers), TOGETHER):
                    end = at + TOGETHER
                    await management.move_scheduled(numbers[at:end], later[at:end])
                    self.answered = end

    async def due_ms_by_body(self) -> dict[str, int]:
        """Return when each message is due, behind all asked before; none is there twice."""
        fence = RemoteMessage.of(data=b"fence")
        async with self._namespace() as namespace:
            management = await namespace.management(QUEUE)
            await management.schedule([scheduled(fence, self.was_ms)])
            peeked = await management.peek(1, 250)
        found = [each for each in peeked if each.state == "scheduled" and each.data != fence.data]
        due_ms = {each.data.decode(): each.scheduled_enqueue_time_ms or 0 for each in found}
        assert len(due_ms) == len(found), "one is there twice"
        return due_ms


@pytest.mark.kills
@pytest.mark.parametrize("step", STEPS)
def test_a_leader_killed_in_a_move_leaves_each_message_exactly_once(
    start_bridge: StartBridge, step: str
) -> None:
    """Of one request all are moved, or none; what it has answered stays so."""
    bridge = start_bridge()
    moving = Moving(bridge)
    numbers = asyncio.run(moving.schedule())
    bridge.kill()
    bridge.start(BUSBRIDGE_FAILPOINT=f"sequencer.number.{step}:{DEADLY}")
    asyncio.run(moving.move(numbers))
    bridge.wait(within_s=DIES_S)
    bridge.start()
    due_ms = asyncio.run(moving.due_ms_by_body())
    assert sorted(map(int, due_ms)) == list(range(len(numbers)))
    moved = {int(body) for body, each in due_ms.items() if each == moving.due_ms}
    stayed = {int(body) for body, each in due_ms.items() if each == moving.was_ms}
    assert len(moved) + len(stayed) == len(numbers)
    assert moved == set(range(len(moved))), "in the order of the requests"
    assert len(moved) in (moving.answered, moving.answered + TOGETHER)
