"""`busbridge top`: backlogs, and what changes in them a second."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusReceiveMode
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.acceptance.busbridge import Busbridge, Make
from tests.acceptance.sdk import client_of, send, unique
from tests.fixtures.bridge import Bridge
from tests.fixtures.terminal import INTERRUPT, terminal

ENTITIES: dict[str, Any] = {}

SHOWN = ("active", "dead_letter", "scheduled")


@pytest.fixture
def plain(bridge: Bridge, make: Make) -> Busbridge:
    """The command."""
    return make(bridge.connection_string)


@pytest.fixture
def name(admin: ServiceBusAdministrationClient) -> Iterator[str]:
    """A name; the queues and topics of it are deleted at the end."""
    chosen = unique("t")
    yield chosen
    for queue in admin.list_queues():
        if queue.name.startswith(chosen):
            admin.delete_queue(queue.name)
    for topic in admin.list_topics():
        if topic.name.startswith(chosen):
            admin.delete_topic(topic.name)


def test_each_interval_has_a_line_for_each_entity_with_the_change_of_its_counts(
    bridge: Bridge, plain: Busbridge, name: str
) -> None:
    """One that is deleted is gone, once; one that is made anew has no rate at first."""
    for queue in ("a", "b"):
        plain.done("create", "queue", f"{name}-{queue}")
    with plain.start("top", f"{name}*", "--interval", "0.3") as process:
        try:
            assert process.stdout is not None
            rows = map(json.loads, process.stdout)
            first = next(rows)
            assert first["active_per_s"] == 0
            assert first["over_s"] > 0.1
            with client_of(bridge) as client:
                send(client, f"{name}-a", *["m"] * 5)
                before, changes = first, []
                for row in rows:
                    if row["path"] != f"{name}-a":
                        continue
                    changes.append(row["active_per_s"] * row["over_s"])
                    assert changes[-1] == pytest.approx(row["active"] - before["active"], abs=0.1)
                    before = row
                    if row["active"] == 5:
                        break
                assert sum(changes) == pytest.approx(5, abs=0.5)
                mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
                with client.get_queue_receiver(f"{name}-a", receive_mode=mode) as receiver:
                    assert receiver.receive_messages(1, max_wait_time=120)
            fell = next(row for row in rows if row["path"] == f"{name}-a" and row["active"] < 5)
            assert fell["active_per_s"] < 0

            plain.done("delete", "queue", f"{name}-b", "--yes")
            gone = next(row for row in rows if row.get("is_gone"))
            assert gone.keys() == {"time", "path", "is_gone"}
            assert gone["path"] == f"{name}-b"
            plain.done("create", "queue", f"{name}-b")
            made = next(row for row in rows if row["path"] == f"{name}-b")
            assert "is_gone" not in made
            assert {made[f"{each}_per_s"] for each in SHOWN} == {None}
            assert made["over_s"] is None
            assert next(row for row in rows if row["path"] == f"{name}-b")["over_s"] > 0
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=120) == 0
        finally:
            process.kill()


def test_it_ends_after_its_intervals_with_the_first_by_what_it_is_sorted_by(
    plain: Busbridge, name: str
) -> None:
    """Patterns choose, as many as are given; subscriptions have their topic's name in theirs."""
    for queue in ("a", "b", "c"):
        plain.done("create", "queue", f"{name}-{queue}")
    plain.done("create", "topic", f"{name}-events")
    plain.done("create", "subscription", f"{name}-events", "audit")
    plain.done("send", f"{name}-b", "m", "--repeat", "2")
    plain.done("send", f"{name}-c", "m", "--schedule", "PT1H")

    def paths(order: str, *patterns: str, count: int = 1) -> list[str]:
        words = ("--sort", order, "--interval", "0.1", "--count", str(count))
        found = plain.done("top", *patterns, *words).rows
        return [row["path"].removeprefix(name) for row in found]

    everything = f"{name}*"
    audit = "-events/Subscriptions/audit"
    assert paths("path", everything) == ["-a", "-b", "-c", "-events", audit]
    assert paths("backlog", everything)[:2] == ["-b", "-c"]
    assert paths("scheduled", everything)[0] == "-c"
    assert paths("path", f"{name}-A", f"{name}*/audit") == ["-a", audit]
    assert paths("path", f"{name}-a", count=3) == ["-a"] * 3
    assert paths("path", f"{name}-nothing") == []


@pytest.mark.parametrize("words", [("--interval", "0"), ("--interval", "nan"), ("--count", "0")])
def test_what_makes_no_sense_is_refused(plain: Busbridge, words: tuple[str, ...]) -> None:
    """By exit code 2."""
    said = plain("top", *words)
    assert (said.code, said.out) == (2, "")
    assert f"{words[0]} is above 0" in said.err


def test_at_a_terminal_the_table_changes_in_its_place_until_it_is_interrupted(
    plain: Busbridge, name: str
) -> None:
    """What changes comes first, and below the table stands what a rate is."""
    for queue in ("a", "b"):
        plain.done("create", "queue", f"{name}-{queue}")
    with terminal(plain.line("top", f"{name}*", "--interval", "0.5")) as shown:
        shown.awaits("rates come with the next reading")
        shown.awaits("what came less what went")
        plain.done("send", f"{name}-b", "m", "--repeat", "77")
        shown.awaits(" 77 ")
        shown.type(INTERRUPT)
        assert shown.code() == 0
    rows = [line.split()[0] for line in shown.lines if line.lstrip().startswith(name)]
    assert rows == [f"{name}-b", f"{name}-a"]
    assert sum("active per s" in line for line in shown.lines) == 1
    assert '"path"' not in shown.text


def test_at_a_terminal_it_ends_after_its_intervals(plain: Busbridge, name: str) -> None:
    """The last table stays there."""
    plain.done("create", "queue", name)
    with terminal(plain.line("top", name, "--interval", "0.1", "--count", "2")) as shown:
        assert shown.code() == 0
    assert sum(line.split()[:1] == [name] for line in shown.lines) == 1, shown.raw
