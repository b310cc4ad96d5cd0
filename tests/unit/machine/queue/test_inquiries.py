"""What waits for an answer: in order, each once, and never on an older answer."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bridge.machine.queue import inquiries
from bridge.machine.queue.inquiries import Inquiries, Passed, locked_message, must_ask
from bridge.machine.queue.second_copies import Identity
from bridge.wire.commits import NO_INQUIRY, LockedMessage, OutcomeKind
from bridge.wire.inquiries import Told
from tests.fixtures.examples import examples

SOURCE = b"source\x00"
DONE: Told = OutcomeKind.COMPLETE, b""


@dataclass
class Came:
    """A message that has come."""

    number: int = 5
    identity: Identity = b"identity of twenty b"
    generation: int = 0
    deaths: int = 0


@given(st.booleans(), st.booleans(), st.integers(0, 3), st.integers(-1, 3))
def test_only_what_may_be_settled_is_asked_for(
    is_transactional: bool, is_redelivered: bool, deliveries: int, number: int
) -> None:
    """Nobody else pays: no entity without transactions, no first delivery."""
    asks = must_ask(
        Came(number),
        is_transactional=is_transactional,
        is_redelivered=is_redelivered,
        deliveries=deliveries,
    )
    comes_again = is_redelivered or deliveries > 0
    assert asks == (is_transactional and comes_again and number >= 0)


def test_a_message_is_known_by_its_queue_number_and_identity() -> None:
    """Brought back from the dead-letter queue it is another one."""
    first = locked_message(Came(), SOURCE)
    assert first == locked_message(Came(), SOURCE)
    assert first.source == SOURCE
    assert (first.number, first.generation) == (5, 0)
    others = (
        Came(identity=b"another's"),
        Came(deaths=1),
        Came(deaths=2),
        Came(identity=(5, 7)),
    )
    hashes = {locked_message(each, SOURCE).hashed for each in others}
    assert len(hashes | {first.hashed}) == 5


def test_a_question_has_no_more_messages_than_a_leader_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others are in the next one."""
    monkeypatch.setattr(inquiries, "MESSAGES_MAX", 2)
    waiting: Inquiries[int] = Inquiries()
    for number in range(3):
        assert not waiting.put(number, LockedMessage(SOURCE, number, 0))
    assert [each.number for each in waiting.question(b"1")] == [0, 1]
    assert waiting.question(b"2") == []
    waiting.answered(b"1", [None, DONE])
    assert waiting.take() == [Passed(0, None, b"1"), Passed(1, DONE, b"1")]
    assert [each.number for each in waiting.question(b"3")] == [2]


def test_an_answer_of_another_length_is_refused() -> None:
    """It is no answer to the question."""
    waiting: Inquiries[int] = Inquiries()
    waiting.put(0, LockedMessage(SOURCE, 0, 0))
    waiting.question(b"1")
    with pytest.raises(ValueError, match="an answer of 0 to an inquiry for 1"):
        waiting.answered(b"1", [])
    assert waiting.take() == []


class InquiriesInAnyOrder(RuleBasedStateMachine):
    """Arrivals, answers, failures and losses in any order, against a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: Inquiries[int] = Inquiries()
        self.came: list[int] = []
        self.asking: dict[int, bool] = {}
        self.answered_of: dict[int, tuple[Told, bytes]] = {}
        self.out: list[int] = []
        self.count = self.questions = 0
        self.under_way: tuple[bytes, list[int]] | None = None
        self.old: list[tuple[bytes, int]] = []

    @rule(asks=st.booleans())
    def put(self, asks: bool) -> None:
        """Something comes, and is asked for or not."""
        self.count += 1
        step = self.count
        self.asking[step] = asks
        is_first = not self.came
        goes_on = self.waiting.put(step, LockedMessage(SOURCE, step, 0) if asks else None)
        assert goes_on == (is_first and not asks)
        if not goes_on:
            self.came.append(step)

    @rule()
    def ask(self) -> None:
        """A question is sent: for all that was not asked for, if none is under way."""
        self.questions += 1
        inquiry = self.questions.to_bytes(8, "big")
        asked = [each.number for each in self.waiting.question(inquiry)]
        if self.under_way is not None:
            assert not asked, "two questions at a time"
            return
        expected = [
            each for each in self.came if self.asking[each] and each not in self.answered_of
        ]
        assert asked == expected
        if asked:
            self.under_way = inquiry, asked

    @precondition(lambda self: self.under_way)
    @rule(told=st.lists(st.none() | st.just(DONE), min_size=99, max_size=99))
    def answer(self, told: list[Told]) -> None:
        """The leader answers."""
        assert self.under_way is not None
        inquiry, asked = self.under_way
        self.waiting.answered(inquiry, told[: len(asked)])
        self.answered_of |= {each: (one, inquiry) for each, one in zip(asked, told, strict=False)}
        self._end()

    @precondition(lambda self: self.under_way)
    @rule()
    def fail(self) -> None:
        """No answer comes in time; it may come later."""
        assert self.under_way is not None
        self.waiting.failed(self.under_way[0])
        self._end()

    @precondition(lambda self: self.old)
    @rule(is_answer=st.booleans())
    def come_late(self, is_answer: bool) -> None:
        """An old question ends once more."""
        inquiry, count = self.old[-1]
        if is_answer:
            self.waiting.answered(inquiry, [DONE] * count)
        else:
            self.waiting.failed(inquiry)

    @rule()
    def lose(self) -> None:
        """The connection ends."""
        assert self.waiting.lose() == self.came
        self.came = []
        if self.under_way is not None:
            self._end()

    def _end(self) -> None:
        assert self.under_way is not None
        self.old.append((self.under_way[0], len(self.under_way[1])))
        self.under_way = None

    @invariant()
    def what_goes_on_is_in_order_and_answered(self) -> None:
        """The front goes on as far as it is answered, with its own answer, once."""
        for passed in self.waiting.take():
            assert passed.step == self.came.pop(0), "out of order"
            if self.asking[passed.step]:
                assert (passed.told, passed.inquiry) == self.answered_of[passed.step]
            else:
                assert (passed.told, passed.inquiry) == (None, NO_INQUIRY)
        if self.came:
            assert self.asking[self.came[0]], "it waits for nothing"
            assert self.came[0] not in self.answered_of, "it waits for nothing"
        assert len(self.waiting) == len(self.came)


TestInquiriesInAnyOrder = InquiriesInAnyOrder.TestCase
TestInquiriesInAnyOrder.settings = settings(
    max_examples=examples(200), stateful_step_count=40, deadline=None
)
