"""The library's `AutoLockRenewer`: what fails or is slow for one lock is nothing to the others."""

from __future__ import annotations

import copy
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.lanes import LANES, Lane, lane_of
from tests.acceptance.sdk import receive, sleep_until
from tests.fixtures.bridge import Bridge
from tests.fixtures.waiting import eventually

LOCK = {"LockDuration": "PT5S"}
ENTITIES = {f"{name}-{lane}": LOCK for name in ("failing", "beside") for lane in LANES[1:]} | {
    f"slow-{lane}": {**LOCK, "RequiresSession": True} for lane in LANES[1:]
}


@pytest.fixture(params=LANES[1:])
def lane(request: pytest.FixtureRequest, bridge: Bridge) -> Iterator[Lane]:
    """The library on pika, and on aio-pika."""
    with lane_of(request.param, bridge) as made:
        yield made


@pytest.mark.long
def test_a_callback_that_fails(lane: Lane) -> None:
    """It is told why, as by the SDK; the other locks are renewed all the same."""
    queue = f"failing-{lane.name}"
    told: list[tuple[Any, Exception | None]] = []

    def fail(renewable: Any, error: Exception | None) -> None:
        told.append((renewable, error))
        raise RuntimeError("It is the application's own error.")

    async def fail_on_loop(renewable: Any, error: Exception | None) -> None:
        fail(renewable, error)

    on_failure = fail if lane.name == "pika" else fail_on_loop
    lane.send(queue, "lost", "kept", "later")
    with lane.client.get_queue_receiver(queue) as receiver, lane.renewer() as renewer:
        (lost,) = receive(receiver)
        (kept,) = receive(receiver)
        renewer.register(receiver, lost, on_lock_renew_failure=on_failure)
        renewer.register(receiver, kept, on_lock_renew_failure=on_failure)
        receiver.complete_message(copy.copy(lost))  # of which the renewer knows nothing
        eventually(lambda: told, "the lock could not be renewed")
        (later,) = receive(receiver)
        renewer.register(receiver, later)
        sleep_until(later.locked_until_utc, and_s=0.5)
        receiver.complete_message(kept)
        receiver.complete_message(later)
    ((renewable, error),) = told
    assert renewable is lost
    assert isinstance(error, lane.errors.AutoLockRenewFailed)
    assert lost.auto_renew_error is error


def test_a_renewal_that_takes_long(lane: Lane, bridge: Bridge) -> None:
    """A bridge does not answer for its session: a message's lock is renewed meanwhile."""
    queue = f"beside-{lane.name}"
    lane.send(queue, "kept")
    lane.send(f"slow-{lane.name}", "one", session_id="s")
    with (
        lane.client.get_queue_receiver(queue) as receiver,
        lane.client.get_queue_receiver(f"slow-{lane.name}", session_id="s") as accepted,
        lane.renewer() as renewer,
    ):
        renewer.register(accepted, accepted.session)
        (kept,) = receive(receiver)
        renewer.register(receiver, kept)
        locked_until_utc = kept.locked_until_utc
        os.kill(bridge.pid, signal.SIGSTOP)
        try:
            sleep_until(locked_until_utc, and_s=0.5)
            receiver.complete_message(kept)
        finally:
            os.kill(bridge.pid, signal.SIGCONT)
