"""send, receive and peek through a tap that plays Azure under stress: what they do and say."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from bridge.model.entity import Queue
from tests.acceptance.busbridge import Busbridge
from tests.conformance.door import Door, connection_string
from tests.fixtures.tap import (
    BUSY,
    BUSY_TEXT,
    Play,
    Tap,
    busy,
    count_released,
    cut,
    detach,
    hand_on,
    http_answer,
    one_message,
    refuse,
    tap,
    timed_out,
)
from tests.fixtures.terminal import INTERRUPT, terminal
from tests.fixtures.waiting import eventually

STOPPING = "stopping; interrupt again to stop at once"


@dataclass
class StressedCommands:
    """The command, and the tap that it reaches its namespace through."""

    azure: Tap
    busbridge: Busbridge

    def bodies(self, entity: str = "q") -> list[str]:
        """Return the bodies of all messages."""
        return [each["body"] for each in self.busbridge.done("peek", entity, "--all").rows]


@pytest.fixture(params=["memory", "rabbitmq"])
def stress(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[StressedCommands]:
    """A namespace in memory, or a bridge on a RabbitMQ, with the queues `q` and, of sessions, `s`.

    The bridge is one for all tests; its queues are each test's own.
    """
    queues = Queue(name="q", lock_duration_ms=60_000), Queue(name="s", requires_session=True)
    with Door(*queues) as door:
        is_memory = request.param == "memory"
        port = door.port if is_memory else request.getfixturevalue("bridge").port
        stack = AsyncExitStack()
        azure = door.run(stack.enter_async_context(tap(port)))
        place = connection_string(azure.port)
        made = StressedCommands(azure, Busbridge(place, tmp_path, monkeypatch, capsys))
        try:
            if not is_memory:
                made.busbridge.done("create", "queue", "q", "--lock-duration", "PT1M")
                made.busbridge.done("create", "queue", "s", "--requires-session")
            yield made
        finally:
            azure.http_answers.clear()
            if not is_memory:
                for name in ("q", "s"):
                    made.busbridge.done("delete", "queue", name, "--yes")
            door.run(stack.aclose())


def lines(count: int, **fields: str) -> str:
    """Return lines of messages."""
    return "".join(f"{json.dumps({'body': str(at), **fields})}\n" for at in range(count))


@pytest.mark.long
def test_commands_wait_while_a_namespace_is_throttled(stress: StressedCommands) -> None:
    """Each as long as it is asked to, and 4 s at least; then it has done all, once."""
    azure, busbridge = stress.azure, stress.busbridge
    began_s = time.monotonic()
    azure.when("send", busy)
    said = busbridge.done("send", "q", given=lines(3))
    assert said.err == "Sent 3 messages to q.\n"
    azure.when("request", busy)
    assert stress.bodies() == ["0", "1", "2"]
    azure.when("attach", busy, address="q")
    azure.when("settle", busy, times=2)
    said = busbridge.done("receive", "q", "--all", "--settle", "complete", "--yes", "--wait", "1")
    assert [each["body"] for each in said.rows] == ["0", "1", "2"]
    assert said.err == "3 completed.\n"
    assert time.monotonic() - began_s >= 16.0
    assert azure.is_done
    assert stress.bodies() == []


def test_a_session_is_settled_when_the_pause_is_over(stress: StressedCommands) -> None:
    """By its lock, which the receiver still holds."""
    stress.busbridge.done("send", "s", given=lines(2, session_id="A"))
    stress.azure.when("settle", busy)
    said = stress.busbridge.done(
        *("receive", "s", "--session", "A", "--count", "2"),
        *("--settle", "complete", "--yes"),
    )
    assert said.err == "2 completed.\n"
    assert stress.bodies("s") == []


@pytest.mark.parametrize(
    "play",
    [detach(BUSY, BUSY_TEXT), detach("amqp:not-allowed", "no"), detach(), cut, timed_out],
    ids=["busy", "not-allowed", "idle", "cut", "timed-out"],
)
def test_what_was_sent_unheard_is_not_sent_again(stress: StressedCommands, play: Play) -> None:
    """It is said to be in doubt, with both ways to go on; exit code 4; and it is there once."""
    stress.azure.when("sent", play)
    said = stress.busbridge("send", "q", given=lines(3))
    assert said.code == 4
    assert "the next 3 may have been sent, or not" in said.err
    assert "--skip 0" in said.err
    assert "--skip 3" in said.err
    assert stress.bodies() == ["0", "1", "2"]


def test_what_was_settled_unheard_is_said_to_be_in_doubt(stress: StressedCommands) -> None:
    """And it is gone."""
    stress.busbridge.done("send", "q", "m")
    stress.azure.when("settled", cut)
    said = stress.busbridge("receive", "q", "--settle", "complete", "--yes")
    assert said.code == 3
    assert [each["body"] for each in said.rows] == ["m"]
    assert "It may be settled, or not." in said.err
    assert stress.bodies() == []


def test_links_that_end_as_idle_are_not_seen(stress: StressedCommands) -> None:
    """Where nothing was under way the commands go on."""
    stress.azure.when("reply", detach(), address="q/$management")
    stress.busbridge.done("send", "q", given=lines(2))
    assert stress.bodies() == ["0", "1"]
    stress.azure.when("request", cut)
    assert stress.bodies() == ["0", "1"]


def test_a_namespace_that_refuses_says_why_and_which_right_is_needed(
    stress: StressedCommands,
) -> None:
    """One sentence, exit code 1, nothing done."""
    for words, right in ((("peek", "q"), "Listen"), (("send", "q", "m"), "Send")):
        stress.azure.when("attach", refuse(*stress.azure.expired))
        said = stress.busbridge(*words)
        assert (said.code, said.out) == (1, "")
        assert "ExpiredToken" in said.err
        assert f"needs the right {right}" in said.err
    assert stress.bodies() == []


def test_what_comes_with_an_interrupt_is_shown_before_it_is_deleted(
    stress: StressedCommands,
) -> None:
    """The message and the signal wait for the process together: it is shown, and counted."""
    azure, busbridge = stress.azure, stress.busbridge
    process = busbridge.start("receive", "q", "--delete", "--yes", "--all", "--wait", "60")
    eventually(lambda: azure.has_credit("q"), "it waits for messages")
    azure.when("deliver", hand_on)
    process.send_signal(signal.SIGSTOP)
    busbridge.done("send", "q", "m")
    eventually(lambda: azure.is_done, "the message is on its way")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    said = busbridge.end(process)
    assert [each["body"] for each in said.rows] == ["m"]
    assert said.code == 4
    assert "1 received and deleted" in said.err
    assert stress.bodies() == []


def test_administration_waits_and_doubts_likewise(stress: StressedCommands) -> None:
    """Of 50009 the pause, of a time-out that a change may have been made."""
    azure, busbridge = stress.azure, stress.busbridge
    began_s = time.monotonic()
    throttled = http_answer(503, "Service Unavailable", BUSY_TEXT)
    azure.http_answers = [throttled, http_answer(401, "Unauthorized", "ExpiredToken: ended.")]
    said = busbridge("ls")
    assert (said.code, said.out) == (1, "")
    assert said.err == (
        "busbridge: ExpiredToken: ended. This command needs the right Manage on the namespace.\n"
    )
    assert time.monotonic() - began_s >= 4.0

    azure.http_answers = [throttled, http_answer(504, "Gateway Timeout", "Timed out.")]
    said = busbridge("create", "queue", "x")
    assert said.code == 1
    assert "Timed out. It may have been done, or not." in said.err
    assert not azure.http_answers
    assert sum(each.startswith(b"PUT /x?") for each in azure.http_requests) == 2


@pytest.mark.parametrize("stress", ["rabbitmq"], indirect=True)
@pytest.mark.parametrize("interrupts", [1, 2, 3])
def test_a_probe_that_is_interrupted_removes_what_it_made(
    stress: StressedCommands, tmp_path: Path, interrupts: int
) -> None:
    """It asks first, and writes the answers that it has; a second interrupt waits for none.

    A third one, while a namespace that is throttled has not removed the queues yet, does not leave
    them there.
    """
    azure, busbridge = stress.azure, stress.busbridge
    file = tmp_path / "answers.json"

    def probed() -> list[str]:
        return [each["path"] for each in busbridge.done("ls", "busbridge-probe-*").rows]

    with terminal(busbridge.line("doctor", "--probe", str(file))) as shown:
        shown.awaits("[y/N]")
        assert probed() == []
        shown.type("y\n")
        shown.awaits(re.compile(r"asking .* [1-9]\d*/\d+ ").search)
        assert len(probed()) == 2
        shown.type(INTERRUPT)
        shown.awaits(STOPPING)
        if interrupts > 2:
            azure.http_answers = [http_answer(503, "Service Unavailable", BUSY_TEXT)]
        if interrupts > 1:
            shown.type(INTERRUPT)
        if interrupts > 2:
            eventually(lambda: not azure.http_answers, "the first queue is being removed")
            shown.type(INTERRUPT)
            shown.awaits(lambda text: text.count(STOPPING) == 2)
        assert shown.code() == 4
    assert probed() == []
    assert file.exists() is (interrupts == 1)
    if interrupts == 1:
        answers = json.loads(file.read_text())["answers"]
        assert answers
        assert not [each for each in answers if "failed" in each]


# -- where Azure's answer is not known, each of both


def test_a_peek_that_a_disabled_entity_refuses_or_answers(stress: StressedCommands) -> None:
    """Whichever Azure does: a sentence, or the messages."""
    stress.busbridge.done("send", "q", "m")
    stress.azure.when("request", refuse("com.microsoft:entity-disabled", "SendDisabled."))
    said = stress.busbridge("peek", "q")
    assert (said.code, said.out) == (1, "")
    assert "SendDisabled." in said.err
    assert stress.bodies() == ["m"]


@pytest.mark.parametrize("is_counted", [True, False])
def test_what_is_given_back_comes_again_whether_it_is_counted_or_not(
    stress: StressedCommands, is_counted: bool
) -> None:
    """Nothing is lost; the count is the namespace's."""
    stress.busbridge.done("send", "q", given=lines(2))
    if is_counted:
        stress.azure.when("settle", count_released, times=2)
    for expected in (0, int(is_counted)):
        said = stress.busbridge.done("receive", "q", "--all", "--wait", "2")
        assert sorted(each["body"] for each in said.rows) == ["0", "1"]
        assert {each["delivery_count"] for each in said.rows} == {expected}
    assert stress.azure.is_done


def test_a_peek_goes_on_whatever_the_size_of_a_page(stress: StressedCommands) -> None:
    """A namespace may give fewer messages than it was asked for, and has more."""
    stress.busbridge.done("send", "q", given=lines(4))
    operation = "com.microsoft:peek-message"
    stress.azure.when("reply", one_message, operation=operation, times=3)
    assert stress.bodies() == ["0", "1", "2", "3"]
    assert stress.azure.is_done
