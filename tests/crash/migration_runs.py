"""Runs of `migrate run` that are hurt, and the judgement of what is at both sides then."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from bridge.remote.namespace import RemoteNamespace
from bridge.remote.outcomes import Complete
from bridge.remote.receiver import RemoteReceiver
from tests.crash.migration_stage import (
    SESSIONS,
    EarlyReceiver,
    Messages,
    MigrationStage,
    MovedMessage,
    MovedSide,
    await_filled,
    fill,
    without_scheduled,
)
from tests.crash.stage import Run
from tests.fixtures.held_wire import Way
from tests.fixtures.waiting import eventually

BLOWS: Final = 3
ENDED: Final = ("and no run holds it", "an earlier run has ended there")
"""What a run says at a target where an earlier one has come to its end."""

DOUBTED: Final = ("delete the entity", "Delete the entity", "--give-up")
"""What a run may say only where the source has changed: here it does not."""

DONE_WITHIN_S: Final = 400.0
PAGE: Final = 250
COMES_S: Final = 30.0
SILENCE_S: Final = 0.3

CARRIED: Final = {"source": (45_000, 230_000), "target": (78_000, 87_000)}
"""Bytes that an undisturbed run takes, there and back, about."""

RunBlow = Callable[[MigrationStage, MovedSide, Run], None]
"""Hurts something while the wire of a side holds; afterwards all is there again."""


def kill_command(_: MigrationStage, __: MovedSide, run: Run) -> None:
    """Kill the command."""
    run.process.kill()
    run.process.wait()


def kill_a_bridge(stage: MigrationStage, side: MovedSide, _: Run) -> None:
    """Kill a bridge, and start it again."""
    side.bridge.kill()
    _end_wire(stage, side)
    side.bridge.start()


def kill_a_rabbitmq(stage: MigrationStage, side: MovedSide, _: Run) -> None:
    """Kill a RabbitMQ, and start it again."""
    side.node.kill()
    _end_wire(stage, side)
    side.node.start()


def _end_wire(stage: MigrationStage, side: MovedSide) -> None:
    """What is held is carried, or lost."""
    if stage.chance.random() < 0.5:
        side.wire.let_go()
    else:
        side.wire.cut()


_VICTIMS: Final[dict[str, tuple[RunBlow, str]]] = {
    "the source's bridge": (kill_a_bridge, "source"),
    "the target's bridge": (kill_a_bridge, "target"),
    "the source's RabbitMQ": (kill_a_rabbitmq, "source"),
    "the target's RabbitMQ": (kill_a_rabbitmq, "target"),
    "the command": (kill_command, ""),
}


def play(stage: MigrationStage) -> None:
    """Move all, hurt something at instants by chance, give the command to its end, and judge."""
    fill(stage.source.bridge)
    before = await_filled(stage.source)
    with EarlyReceiver(stage) as receiver:
        move(stage)
    print("\n".join(stage.told))
    assert not receiver.early, f"received before all was verified: {receiver.early}"
    judge(stage, before)


def move(stage: MigrationStage) -> None:
    """Hurt something at instants by chance, and give the command to its end."""
    chance = stage.chance
    run = stage.start()
    before = 0.0
    for instant in sorted(chance.random() for _ in range(chance.randint(1, BLOWS))):
        name = chance.choice(sorted(_VICTIMS))
        blow, victim = _VICTIMS[name]
        held = victim or chance.choice(("source", "target"))
        side = stage.source if held == "source" else stage.target
        at, way = chance.choice(list(enumerate(Way)))
        count = 1 + int((instant - before) * CARRIED[held][at])
        before = instant
        side.wire.hold_after(count, way)
        if run.has_ended:
            if is_over(stage, run):
                break
            run = stage.start()
        eventually(lambda r=run, s=side: s.wire.is_held or r.has_ended, "the wire holds")
        if side.wire.is_held:
            stage.told.append(f"{name} behind {count} bytes {way.value} at the {held}")
            blow(stage, side, run)
        side.wire.let_go()
    end_s = time.monotonic() + DONE_WITHIN_S
    while not is_over(stage, run):
        assert time.monotonic() < end_s, stage.told
        run = stage.start()


def is_over(stage: MigrationStage, run: Run) -> bool:
    """Whether a run, or one before it that was killed at its very end, has done all."""
    said = stage.end(run)
    assert not any(each in said.err for each in DOUBTED), stage.told
    assert said.code in (-9, 0, 1), stage.told
    return said.code == 0 or any(each in said.err for each in ENDED)


def judge(stage: MigrationStage, before: Messages) -> None:
    """See that the target has each message as it was, and the source all but scheduled ones."""
    told = "\n".join(stage.told)
    kept = without_scheduled(before)
    for side, belongs in ((stage.target, before), (stage.source, kept)):
        try:
            eventually(lambda s=side, b=belongs: s.messages() == b, within_s=30.0)
        except AssertionError:
            assert side.messages() == belongs, told
    assert stage.target.marks() == [], told
    alone = {
        path: {number: ["target"] for number in found.keys() - kept[path].keys()}
        for path, found in before.items()
    }
    assert stage.differences() == {path: each for path, each in alone.items() if each}, told
    asyncio.run(receive_all(stage.target, before))


async def receive_all(side: MovedSide, before: Messages) -> None:
    """Receive all that is at the target, and see that each is received once."""
    async with side.namespace() as namespace:
        for path, messages in before.items():
            for session_id in SESSIONS if path == "sessions" else ("",):
                found = {
                    number: each
                    for number, each in messages.items()
                    if each.session_id == session_id or path != "sessions"
                }
                if any(each.state != "scheduled" for each in found.values()):
                    await _receive_some(namespace, path, session_id, found)
        left = {path: set(found) for path, found in (await side.shown()).items()}
    assert left == {
        path: {number for number, each in found.items() if each.state == "scheduled"}
        for path, found in before.items()
    }


async def _receive_some(
    namespace: RemoteNamespace, path: str, session_id: str, belongs: dict[int, MovedMessage]
) -> None:
    """Receive what belongs to a path, or to a session, until nothing comes any more."""
    active = {number: each.body for number, each in belongs.items() if each.state == "active"}
    if session_id:
        receiver: RemoteReceiver = await namespace.session_receiver(path, session_id)
    else:
        receiver = await namespace.receiver(path)
    received: list[tuple[int, bytes]] = []
    wait_s = COMES_S
    while found := await receiver.receive(PAGE, wait_s):
        received += [(each.message.sequence_number or 0, each.message.data) for each in found]
        await receiver.settle_all(found, Complete())
        wait_s = COMES_S if len(received) < len(active) else SILENCE_S
    assert sorted(received) == sorted(active.items()), path
    management = namespace.management_of(path)
    for number, each in belongs.items():
        if each.state == "deferred":
            numbers, mode = [number], "receive-and-delete"
            (got,) = await management.receive_deferred(numbers, mode, session_id or None)
            assert got.message.data == each.body
    await receiver.close()
