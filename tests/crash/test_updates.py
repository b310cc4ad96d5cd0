"""A queue whose definition changes again and again under load: nothing is lost over kills."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from azure.core.exceptions import AzureError
from azure.servicebus.management import EntityStatus, ServiceBusAdministrationClient

from tests.crash.events import Accepted, Delivered, Event, Killed, Settled
from tests.crash.history import check
from tests.crash.load import now_ms
from tests.crash.siege import AHEAD_MS, Notes, Siege, clients, story, wait_for
from tests.fixtures.administration import Administer
from tests.fixtures.bridge import StartBridge
from tests.fixtures.broker import Broker

pytestmark = [pytest.mark.kills, pytest.mark.filterwarnings("ignore::ResourceWarning")]

QUEUE = "load"
LONGEST_LOCK_S = 7
REFUSED_S = 1.0

CHANGES: dict[str, tuple[Any, ...]] = {
    "lock_duration": (timedelta(seconds=5), timedelta(seconds=LONGEST_LOCK_S)),
    "default_message_time_to_live": (timedelta(days=1), timedelta(days=2)),
    "max_delivery_count": (1_000, 2_000),
    "dead_lettering_on_message_expiration": (True, False),
    "max_size_in_megabytes": (1_024, 2_048),
    "user_metadata": ("one", "other"),
    "status": (EntityStatus.SEND_DISABLED, EntityStatus.RECEIVE_DISABLED, EntityStatus.DISABLED),
}


class Updater(threading.Thread):
    """Changes one property after the other; a status that refuses is taken back a second later.

    Attributes:
        done: how many updates were answered.
    """

    def __init__(self, admin: ServiceBusAdministrationClient) -> None:
        super().__init__(daemon=True)
        self.done = 0
        self._admin = admin
        self._chance = random.Random("updates")
        self._ending = threading.Event()

    def run(self) -> None:
        """Update until told to stop; what fails is tried again with another change."""
        while not self._ending.wait(self._chance.uniform(0, 0.3)):
            name = self._chance.choice(list(CHANGES))
            with contextlib.suppress(AzureError):
                self.update(name, self._chance.choice(CHANGES[name]))
                if name == "status":
                    time.sleep(REFUSED_S)
            while name == "status" and not self._activates():
                time.sleep(0.2)

    def update(self, name: str, value: object) -> None:
        """Change one property."""
        there = self._admin.get_queue(QUEUE)
        setattr(there, name, value)
        self._admin.update_queue(there)
        self.done += 1

    def stop(self) -> None:
        """Let the last update end."""
        self._ending.set()
        self.join()

    def _activates(self) -> bool:
        try:
            self.update("status", EntityStatus.ACTIVE)
        except AzureError:
            return False
        return True


@contextlib.contextmanager
def updating(admin: ServiceBusAdministrationClient) -> Iterator[Updater]:
    """Have the queue updated meanwhile."""
    updater = Updater(admin)
    updater.start()
    try:
        yield updater
    finally:
        updater.stop()


def besieged(siege: Siege, broker: Broker, updater: Updater, kills: int, *, both: bool) -> Notes:
    """Kill so many times under load and updates; return what was seen, all of it drained."""
    notes, chance = Notes(), random.Random(kills)
    bridge = siege.bridge

    def progress() -> None:
        for kind in (Accepted, Settled):
            before = notes.count(kind)
            wait_for(
                f"another {kind.__name__}",
                lambda kind=kind, before=before: notes.count(kind) > before,  # type: ignore[misc]
                within_s=90,
            )
        updates = updater.done
        wait_for("another update", lambda: updater.done > updates, within_s=90)

    with clients("send", bridge, "a", notes), clients("receive", bridge, "a", notes):
        progress()
        for turn in range(kills):
            time.sleep(chance.uniform(0.2, 3))
            begun_ms = now_ms()
            if both and turn % 2:
                assert broker.node is not None
                broker.node.kill()
                notes.add(Killed(now_ms(), is_broker=True, begun_ms=begun_ms))
                broker.node.start()
            else:
                bridge.kill()
                notes.add(Killed(now_ms(), begun_ms=begun_ms))
                bridge.start()
            progress()
    updater.stop()
    siege.drain(QUEUE, notes, quiet_s=max(LONGEST_LOCK_S, AHEAD_MS / 1000) + 3)
    return notes


def judge(notes: Notes) -> str:
    """Fail with every fault; return the counts.

    A lock's beginning is told from its end by the shortest duration: it was not after its message
    came.
    """
    events: list[Event] = [
        replace(each, locked_ms=min(each.locked_ms, each.at_ms))
        if isinstance(each, Delivered)
        else each
        for each in notes.events()
    ]
    faults = check(events)
    shown = "\n".join(f"{fault}\n{story(fault, events)}" for fault in faults[:10])
    assert not faults, f"{len(faults)} faults:\n{shown}"
    return f"{notes.count(Accepted)} accepted, {notes.count(Settled)} settled"


def run(
    start: Callable[[], Any], administer: Administer, broker: Broker, kills: int, *, both: bool
) -> None:
    """One such run; the definition is the last that was answered, and is in force."""
    bridge = start()
    admin = administer(bridge)
    with updating(admin) as updater:
        notes = besieged(Siege(bridge), broker, updater, kills, both=both)
        updater.update("user_metadata", "the last")
        assert admin.get_queue(QUEUE).user_metadata == "the last"
    print(f"{updater.done} updates, {judge(notes)}")


def test_updates_lose_nothing_over_kills_of_the_bridge(
    start_bridge: StartBridge, administer: Administer, broker: Broker
) -> None:
    """Three kills."""
    run(start_bridge, administer, broker, 3, both=False)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_updates_lose_nothing_over_twenty_kills(
    start_broker: Callable[[], Broker], start_bridge: StartBridge, administer: Administer
) -> None:
    """Twenty kills, in turn of the bridge and of RabbitMQ."""
    broker = start_broker()
    run(lambda: start_bridge(on=broker, vhost="/"), administer, broker, 20, both=True)
