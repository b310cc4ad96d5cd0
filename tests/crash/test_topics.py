"""The bridge is killed under the load of a topic; each subscription has everything, in order."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.crash.history import check
from tests.crash.load import LOCK_MS
from tests.crash.siege import Notes, Siege, await_more, clients, story
from tests.fixtures.bridge import StartBridge

pytestmark = pytest.mark.kills

SUBSCRIPTIONS = ("one", "other", "third")
AHEAD_S = 3.0
FEW, MANY = 3, 20


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A topic; one of its subscriptions takes nothing, one has copies that an action changed."""
    settings = {"LockDuration": "PT5S", "MaxDeliveryCount": 2000}
    nothing = {"CorrelationFilter": {"Label": "nobody's"}, "FilterType": "Correlation"}
    acted = {
        "FilterType": "Sql",
        "SqlFilter": {"SqlExpression": "sys.Size >= 0"},
        "Action": {"SqlExpression": "SET acted = TRUE"},
    }
    rules = {"third": [{"Name": "acted", "Properties": acted}]}
    subscriptions = [
        *(
            {"Name": name, "Properties": settings, "Rules": rules.get(name, [])}
            for name in SUBSCRIPTIONS
        ),
        {"Name": "idle", "Rules": [{"Name": "nothing", "Properties": nothing}]},
    ]
    topic = {"Name": "topic", "Subscriptions": subscriptions}
    namespace = {"Name": "sbemulatorns", "Queues": [], "Topics": [topic]}
    path = tmp_path / "Config.json"
    path.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}))
    return path


def path_of(name: str) -> str:
    """The path of a subscription."""
    return f"topic/Subscriptions/{name}"


def besiege(start_bridge: StartBridge, config: Path, kills: int) -> dict[str, Notes]:
    """Kill the bridge so many times under load, then drain; return what each subscription saw."""
    siege = Siege(start_bridge(config=config))
    bridge, books = siege.bridge, {name: Notes() for name in SUBSCRIPTIONS}

    def progress() -> None:
        for name, notes in books.items():
            await_more(notes, f"of {name}", within_s=120)

    with ExitStack() as at_work:
        at_work.enter_context(clients("topic", bridge, "a", *books.values()))
        for name, notes in books.items():
            at_work.enter_context(clients(path_of(name), bridge, name, notes))
        siege.kill_in_turn(*books.values(), kills=kills, progress=progress, pause_s=(0.2, 2))
    for name, notes in books.items():
        siege.drain(path_of(name), notes, quiet_s=max(LOCK_MS / 1000 + 1, AHEAD_S + 3))
    idle = Notes()
    siege.drain(path_of("idle"), idle, quiet_s=1)
    assert idle.events() == []
    return books


def judge(books: dict[str, Notes]) -> None:
    """Fail with every fault of every subscription."""
    stories = []
    for name, notes in books.items():
        faults = check(notes.events(), bridges=1)
        stories += [f"{name}: {fault}\n{story(fault, notes.events())}" for fault in faults[:5]]
    assert not stories, "\n".join(stories)


def test_kills_under_the_load_of_a_topic(start_bridge: StartBridge, config: Path) -> None:
    """Nothing lost, no number twice, none left out, in any of the subscriptions."""
    judge(besiege(start_bridge, config, FEW))


@pytest.mark.soak
def test_twenty_kills_under_the_load_of_a_topic(start_bridge: StartBridge, config: Path) -> None:
    """The same, twenty times."""
    judge(besiege(start_bridge, config, MANY))
