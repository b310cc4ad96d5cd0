"""The synchronous client's threads: interrupts in the middle of a turn, calls that race its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from bridge.client import ServiceBusClient
from bridge.client.core.call import Call
from bridge.client.core.wire import CallerFuture
from bridge.client.exceptions import OutcomeUnknownError, ServiceBusError
from bridge.client.sync.outcome import CallOutcome
from bridge.client.sync.thread import IoThread
from tests.fixtures.waiting import eventually


@pytest.fixture
def thread() -> Iterator[IoThread]:
    """An I/O thread of no connection."""
    made = IoThread()
    yield made
    made.stop()
    made.join(120)


class Interrupted(Exception):
    """What a signal handler raises."""


def interrupt(error: BaseException) -> None:
    """A signal comes in the middle of a turn."""
    raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Interrupted(), TimeoutError()])
def test_what_was_half_done_is_given_up_first(thread: IoThread, error: BaseException) -> None:
    """Before anything else is done; whatever a signal handler raises is the caller's."""
    done: list[str] = []
    thread.on_torn.append(lambda: done.append("given up"))
    with pytest.raises(type(error)):
        thread.do(partial(interrupt, error))
    thread.do(lambda: done.append("next"))
    eventually(lambda: len(done) == 2, "both are done")
    assert done == ["given up", "next"]


def test_an_interrupt_between_two_parts_of_a_turn(thread: IoThread) -> None:
    """Also what is called at the turn's end."""
    torn = threading.Event()
    thread.on_torn.append(torn.set)
    with pytest.raises(Interrupted):
        thread.do(lambda: thread.soon(partial(interrupt, Interrupted())))
    assert torn.wait(120)


def test_who_waits_hears_that_another_was_interrupted(thread: IoThread) -> None:
    """His answer may have been taken, and never told."""
    answers = [CallOutcome(), CallOutcome()]
    answers[0]._take()
    waiting = [threading.Thread(target=wait_for, args=(thread, each)) for each in answers]
    for each in waiting:
        each.start()
    eventually(lambda: len(thread._awaited) == 2, "both wait")
    with pytest.raises(KeyboardInterrupt):
        thread.do(partial(interrupt, KeyboardInterrupt()))
    for each in waiting:
        each.join(120)
    assert [type(each.exception()) for each in answers] == [OutcomeUnknownError] * 2


def wait_for(thread: IoThread, answer: CallOutcome) -> None:
    """Wait for an answer, as a call does."""
    with thread.awaited(answer):
        answer.wait()


def test_a_call_in_a_handler_that_has_interrupted_the_client_is_refused(thread: IoThread) -> None:
    """It would wait for what the interrupted turn holds up; other threads' calls go on."""
    errors: list[str] = []

    def handler() -> None:
        with pytest.raises(ServiceBusError) as caught:
            thread.do(lambda: errors.append("done"))
        errors.append(str(caught.value))

    thread.do(handler)
    assert len(errors) == 1
    assert "signal handler" in errors[0]
    thread.do(errors.clear)
    eventually(lambda: not errors, "it goes on")


@pytest.mark.parametrize("is_early", [True, False], ids=["before", "behind"])
def test_nobody_waits_for_a_thread_that_has_ended(thread: IoThread, is_early: bool) -> None:
    """Whether he began to wait before its end, or asks behind it."""
    answer = CallOutcome()
    waiting = threading.Thread(target=wait_for, args=(thread, answer))
    if is_early:
        waiting.start()
        eventually(lambda: bool(thread._awaited), "it waits")
    thread.stop()
    thread.join(120)
    thread.do(lambda: None)
    if not is_early:
        waiting.start()
    waiting.join(120)
    assert isinstance(answer.exception(), OutcomeUnknownError)


def test_a_wake_up_that_was_interrupted_delays_nothing_later(thread: IoThread) -> None:
    """Its flag is set, and its byte was never written."""
    thread.loop._is_woken = True
    thread.loop.calls.append(lambda: None)
    eventually(lambda: not thread.loop.calls, "the next turn is within 5 s", within_s=120)
    began_s = time.monotonic()
    done = threading.Event()
    thread.call(done.set)
    assert done.wait(120)
    assert time.monotonic() - began_s < 4


def test_closing_a_client_in_a_forked_child_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was the parent's, whose connections go on."""
    client = ServiceBusClient("amqp://localhost:1")
    thread = client._start()
    monkeypatch.setattr("os.getpid", lambda: -1)
    client.close()
    monkeypatch.undo()
    assert thread._thread.is_alive()
    thread.stop()
    thread.join(120)


def test_a_call_that_begins_while_its_client_is_closed_starts_nothing() -> None:
    """It was let in before the close, and comes to start the thread behind it."""
    client = ServiceBusClient("amqp://localhost:1", retry_total=0)

    @contextmanager
    def closed_first() -> Iterator[None]:
        client.close()
        yield

    client._lock = closed_first()  # type: ignore[assignment]
    with pytest.raises(ValueError, match="closed"):
        client._run(Call("check", ("orders",)))
    assert client._thread is None


def test_a_close_while_the_thread_is_started_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a signal handler, or another thread, that sees no thread yet."""
    client = ServiceBusClient("amqp://localhost:1", retry_total=0)
    started: list[IoThread] = []

    def start() -> IoThread:
        client.close()
        started.append(IoThread())
        return started[0]

    monkeypatch.setattr("bridge.client.sync.client.IoThread", start)
    with pytest.raises(ValueError, match="closed"):
        client._run(Call("check", ("orders",)))
    assert not started[0]._thread.is_alive()


class Namespace:
    """Fails as a call that a signal handler has ended within."""

    def send(self, answer: CallerFuture) -> None:
        """Interrupted, where the library takes every exception for the call's own."""
        raise Interrupted


def test_a_handlers_exception_within_a_call_counts_as_an_interrupt(thread: IoThread) -> None:
    """The caller gets it; what was half done is given up."""
    client = ServiceBusClient("amqp://localhost:1", retry_total=0)
    torn = threading.Event()
    thread.on_torn.append(torn.set)
    client._connected = lambda is_receiving: (Namespace(), thread)  # type: ignore[assignment]
    with pytest.raises(Interrupted):
        client._run(Call("send", ()))
    assert torn.wait(120)
