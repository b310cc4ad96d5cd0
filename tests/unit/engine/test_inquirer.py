"""Asking a leader: what has no answer, or one that makes no sense, is asked for again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from bridge.background.waits import Waits
from bridge.engine.counters import Counters
from bridge.engine.transactions import inquirer
from bridge.engine.transactions.inquirer import BridgeInquirer
from bridge.message.asking import Asking
from bridge.message.message import Message
from bridge.model.errors import OperationTimeout
from bridge.wire.basic import Properties
from bridge.wire.commits import OutcomeKind
from bridge.wire.inquiries import Told, encode_answer
from bridge.wire.record import Record
from bridge.wire.reply import Done

DONE: Told = OutcomeKind.COMPLETE, b""


class AnsweringSender:
    """Answers questions as it is told to."""

    def __init__(self, *answers: Done | Exception) -> None:
        self.answers = list(answers)

    async def ask(self, *question: object, **how: object) -> Done:
        """Return the next answer."""
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def message(number: int) -> Message:
    """Return a message that has come again."""
    return Message(number, None, "", Record(Properties(), b""), 0, None, 0, 0, 0, bytes(16))


def answer(*told: Told) -> Done:
    """Return the answer to a question for so many messages."""
    return Done(content=encode_answer(told))


async def all_told(
    answers: Sequence[Done | Exception], steps: Sequence[Callable[[Told], None]]
) -> None:
    """Ask for a message a step, until all is answered."""
    waits = Waits()
    asks = BridgeInquirer(
        cast(Any, AnsweringSender(*answers)),
        waits,
        Counters(),
        lambda locked, disposition, done: None,
        lambda front, message: None,
        lambda path: None,
    )
    asking = Asking("orders", "orders", bytes(7), asks.begin, lambda: None)
    for number, step in enumerate(steps, 1):
        asking.put(step, message(number))
    await asyncio.gather(*asks._tasks)
    assert not asking.waits
    assert not waits.late


@pytest.mark.parametrize(
    "first",
    [
        OperationTimeout("no answer"),
        answer(DONE),
        Done(content=b"\x09\0\0\0\0" * 2),
        Done(content=b"\x01"),
    ],
    ids=["none", "of another length", "of an unknown kind", "cut off"],
)
async def test_what_has_no_good_answer_is_asked_for_again(
    first: Done | Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All messages of the question are."""
    monkeypatch.setattr(inquirer, "AGAIN_S", 0.01)
    told: list[Told] = []
    await all_told([first, answer(DONE, None)], [told.append, told.append])
    assert told == [DONE, None]


async def test_a_message_that_cannot_be_handled_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither one of the same question nor one of the next."""
    monkeypatch.setattr("bridge.machine.queue.inquiries.MESSAGES_MAX", 2)
    told: list[Told] = []

    def fail(outcome: Told) -> None:
        raise LookupError("details that nobody can read")

    await all_told([answer(DONE, None), answer(None)], [fail, told.append, told.append])
    assert told == [None, None]
    assert "inquiry.failed queue=orders" in caplog.text
