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

from tests.crash.events import Delivered, Event
from tests.crash.siege import AHEAD_MS, Notes, Siege, await_more, clients, faultless, wait_for
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


def besieged(siege: Siege, updater: Updater, kills: int, broker: Broker | None) -> Notes:
    """Kill so many times under load and updates; return what was seen, all of it drained."""
    notes, bridge = Notes(), siege.bridge

    def progress() -> None:
        await_more(notes)
        updates = updater.done
        wait_for("another update", lambda: updater.done > updates, within_s=120)

    with clients("send", bridge, "a", notes), clients("receive", bridge, "a", notes):
        siege.kill_in_turn(notes, kills=kills, progress=progress, broker=broker)
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
    return faultless(events)


def run(
    start: Callable[[], Any], administer: Administer, kills: int, broker: Broker | None = None
) -> None:
    """One such run; the definition is the last that was answered, and is in force."""
    bridge = start()
    admin = administer(bridge)
    with updating(admin) as updater:
        notes = besieged(Siege(bridge), updater, kills, broker)
        updater.update("user_metadata", "the last")
        assert admin.get_queue(QUEUE).user_metadata == "the last"
    print(f"{updater.done} updates, {judge(notes)}")


def test_updates_lose_nothing_over_kills_of_the_bridge(
    start_bridge: StartBridge, administer: Administer
) -> None:
    """Three kills."""
    run(start_bridge, administer, 3)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_updates_lose_nothing_over_twenty_kills(
    start_broker: Callable[[], Broker], start_bridge: StartBridge, administer: Administer
) -> None:
    """Twenty kills, in turn of the bridge and of RabbitMQ."""
    broker = start_broker()
    run(lambda: start_bridge(on=broker, vhost="/"), administer, 20, broker)
