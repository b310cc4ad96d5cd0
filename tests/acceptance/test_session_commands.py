"""session ls, and session state get, set and clear, as somebody types them, on a real bridge."""

from __future__ import annotations

import json
import signal

import pytest

from tests.acceptance.busbridge import Busbridge, Make
from tests.fixtures.bridge import Bridge
from tests.fixtures.waiting import eventually

SESSIONS = {"RequiresSession": True}
ENTITIES = {name: {**SESSIONS, "LockDuration": "PT30S"} for name in ("list", "states", "held")}


@pytest.fixture
def busbridge(bridge: Bridge, make: Make) -> Busbridge:
    """The command, on the module's bridge."""
    return make(bridge.connection_string)


def test_sessions_with_messages_or_a_state_are_listed(busbridge: Busbridge) -> None:
    """Above a page, each once."""
    said = busbridge.done("session", "ls", "list")
    assert (said.out, said.err) == ("", "There are no sessions.\n")
    names = {f"s{at}" for at in range(130)}
    rows = ({"body": "x", "session_id": each} for each in sorted(names))
    busbridge.done("send", "list", given="".join(f"{json.dumps(each)}\n" for each in rows))
    busbridge.done("session", "state", "set", "list", "--session", "idle", "--text", "a")

    def listed() -> list[str]:
        found = busbridge.done("session", "ls", "list").rows
        return sorted(each["session_id"] for each in found)

    eventually(lambda: listed() == sorted({*names, "idle"}), "all are listed, each once")
    recent = busbridge.done("session", "ls", "list", "--state-set-since", "2020-01-01T00:00:00Z")
    assert recent.row == {"session_id": "idle"}


def test_a_state_is_set_shown_and_cleared_and_the_messages_stay(busbridge: Busbridge) -> None:
    """What would be lost is asked about."""
    busbridge.done("send", "states", "order", "--session", "s")
    words = ("--session", "s")
    state = ("session", "state")
    assert busbridge.done(*state, "get", "states", *words).row == {"session_id": "s", "state": None}
    busbridge.done(*state, "set", "states", *words, "--text", '{"step": 1}')
    assert busbridge.done(*state, "get", "states", *words).row["state"] == '{"step": 1}'
    asked = busbridge(*state, "set", "states", *words, "--text", "other")
    assert (asked.code, "11 bytes: it is overwritten" in asked.err) == (2, True)
    busbridge.done(*state, "set", "states", *words, "--data", "AP8=", "--yes")
    assert busbridge.done(*state, "get", "states", *words).row["state"] == {"data": "AP8="}
    asked = busbridge(*state, "clear", "states", *words)
    assert (asked.code, "2 bytes: it is removed" in asked.err) == (2, True)
    busbridge.done(*state, "clear", "states", *words, "--yes")
    said = busbridge.done(*state, "clear", "states", *words, "--yes")
    assert said.err == "The session 's' has no state.\n"
    found = busbridge.done("peek", "states").row
    assert (found["body"], found["delivery_count"]) == ("order", 0)


def test_a_session_that_somebody_holds_is_left_to_him(busbridge: Busbridge) -> None:
    """The command says so; once it is free, the state is told."""
    busbridge.done("send", "held", "order", "--session", "s")
    holder = busbridge.start(
        *("receive", "held", "--session", "s", "--count", "2", "--wait", "120")
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    words = ("session", "state", "set", "held", "--session", "s", "--text", "a")
    said = busbridge(*words)
    assert (said.code, "give the same command again" in said.err) == (1, True), said
    holder.send_signal(signal.SIGINT)
    busbridge.end(holder)
    busbridge.done(*words)
    assert busbridge.done("session", "state", "get", "held", "--session", "s").row["state"] == "a"
