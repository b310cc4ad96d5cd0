"""What `busbridge migrate back` knows of a run: what it has copied, by number."""

from __future__ import annotations

import time
from typing import Any

import pytest

from bridge.cli.main import main
from bridge.operations.migration.run_mark import CLOCKS_MS
from bridge.testing.process import Bridge
from tests.acceptance.sdk import client_of, send, take, texts
from tests.acceptance.test_migrate_back import Migrate, bodies, shows
from tests.acceptance.test_migrate_run import snapshot
from tests.fixtures.waiting import eventually

QUEUES: dict[str, dict[str, Any]] = {"anew": {}, "unmoved": {}, "before": {}}
TOPIC = {"Name": "events", "Subscriptions": [{"Name": "audit"}]}
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def migrate(profiles: None, capsys: pytest.CaptureFixture[str]) -> Migrate:
    """The commands; the profiles `here` and `there` are the two bridges."""
    return Migrate(capsys)


def test_an_entity_that_no_run_has_copied_to_the_target_as_it_is_now_is_refused(
    bridges: tuple[Bridge, Bridge], migrate: Migrate
) -> None:
    """What it lacks was not settled there: made anew it has nothing, and the source all."""
    source, target = bridges
    with client_of(source) as client:
        send(client, "anew", "1", "2")
        send(client, "unmoved", "3")
    eventually(shows(source, "anew", 2), "all is at the source")
    eventually(shows(source, "unmoved", 1), "all is at the source")
    assert migrate("run", "anew").code == 0
    ended_s = time.monotonic()
    assert main(["delete", "queue", "anew", "-n", "there", "--yes"]) == 0
    eventually(lambda: time.monotonic() > ended_s + CLOCKS_MS / 1_000 + 1, "clocks agree that")
    for queue in ("anew", "unmoved"):
        assert main(["create", "queue", queue, "-n", "there"]) == 0
    said = migrate("back", "anew", "unmoved", "--leave-new")
    assert said.code == 1
    assert "anew: the target's was made behind its copy" in said.err
    assert "unmoved: no run that has come to its end has copied it" in said.err
    assert bodies(snapshot(source, "anew"), "anew") == {"1": "active", "2": "active"}
    assert bodies(snapshot(source, "unmoved"), "unmoved") == {"3": "active"}
    with client_of(target) as client:
        send(client, "anew", "it is not held")


def test_what_was_copied_is_told_by_its_number_whenever_the_target_was_made(
    bridges: tuple[Bridge, Bridge], migrate: Migrate
) -> None:
    """What is above the last number was never at the target: it stays, and is named."""
    source, target = bridges
    assert main(["create", "queue", "before", "-n", "there", "--lock-duration", "PT5S"]) == 0
    with client_of(source) as client:
        send(client, "before", "1", "2", "3")
    eventually(shows(source, "before", 3), "all is at the source")
    assert migrate("run", "before").code == 0
    with client_of(source) as client:
        send(client, "before", "behind the copy")
    with client_of(target) as client, client.get_queue_receiver("before") as receiver:
        assert texts(take(receiver, 2)) == ["1", "2"]
    eventually(shows(target, "before", 1), "all is settled")
    eventually(shows(source, "before", 4), "it came")
    behind = max(snapshot(source, "before")["before"])
    said = migrate("back", "before")
    assert said.code == 3
    assert f"before: 1 at the source alone, come behind the copy: they stay: {behind}" in said.err
    found = bodies(snapshot(source, "before"), "before")
    assert found == {"3": "active", "behind the copy": "active"}
