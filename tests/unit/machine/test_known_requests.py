"""A request is carried out once, however often it comes, and each copy is answered the same."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.machine.amqp10.known_requests import ANSWERED_MAX, KnownRequests, RequestArrival
from tests.fixtures.examples import examples

KEY = (1, b"a")


def carried_out(known: KnownRequests, key: tuple[int, bytes], reply: bytes = b"done") -> None:
    """A request comes and is answered, alone."""
    assert known.arrive(key) is RequestArrival.FIRST
    assert known.answer(key, reply) == 1


def test_a_copy_that_comes_while_the_first_is_under_way() -> None:
    """It is answered together with the first, which counts it."""
    known = KnownRequests()
    assert known.arrive(KEY) is RequestArrival.FIRST
    assert known.arrive(KEY) is RequestArrival.COPY_UNDER_WAY
    assert known.arrive(KEY) is RequestArrival.COPY_UNDER_WAY
    assert known.answer(KEY, b"done") == 3


def test_a_copy_that_comes_after_the_answer() -> None:
    """It gets the same answer."""
    known = KnownRequests()
    carried_out(known, KEY)
    for _ in range(2):
        assert known.arrive(KEY) is RequestArrival.COPY_ANSWERED
        assert known.reply(KEY) == b"done"


def test_a_request_that_was_undone_is_carried_out_again() -> None:
    """Its reply is kept no more; nor does it take room."""
    known = KnownRequests(reply_bytes_max=10)
    for _ in range(3):
        carried_out(known, KEY, b"0123456789")
        known.forget(KEY)
        assert known.reply(KEY) is None
    carried_out(known, KEY, b"0123456789")
    assert known.reply(KEY) == b"0123456789"


def test_an_id_is_used_anew_after_a_thousand_others() -> None:
    """The thousandth other request still knows it, the next one does not."""
    known = KnownRequests()
    carried_out(known, KEY)
    for number in range(ANSWERED_MAX - 1):
        carried_out(known, (2, number.to_bytes(4, "big")))
    assert known.arrive(KEY) is RequestArrival.COPY_ANSWERED
    carried_out(known, (3, b""))
    carried_out(known, KEY, b"anew")
    assert known.reply(KEY) == b"anew"


def test_one_under_way_is_known_however_long_it_takes() -> None:
    """Thousands of others that were answered meanwhile do not make it new."""
    known = KnownRequests()
    assert known.arrive(KEY) is RequestArrival.FIRST
    for number in range(3 * ANSWERED_MAX):
        carried_out(known, (2, number.to_bytes(4, "big")))
    assert known.arrive(KEY) is RequestArrival.COPY_UNDER_WAY


def test_the_same_request_on_another_link() -> None:
    """Some clients number their requests from one on, on each link."""
    known = KnownRequests()
    carried_out(known, (1, b"a"))
    carried_out(known, (2, b"a"))


def test_large_replies_are_not_kept_for_ever() -> None:
    """The oldest go first; the requests stay known, and are not carried out again."""
    known = KnownRequests(reply_bytes_max=10)
    for number, size in enumerate((4, 6, 1, 11)):
        carried_out(known, (number, b""), bytes(size))
    assert [known.reply((number, b"")) for number in range(4)] == [None, bytes(6), bytes(1), None]
    for number in range(4):
        assert known.arrive((number, b"")) is RequestArrival.COPY_ANSWERED


ANSWERED = 3
REPLIES = 20


@settings(max_examples=examples(300))
@given(
    st.lists(st.tuples(st.sampled_from(["arrive", "answer"]), st.integers(0, 7), st.integers(0, 9)))
)
def test_any_order_of_arrivals_and_answers(steps: list[tuple[str, int, int]]) -> None:
    """Every request that arrived is answered once, and carried out unless a copy of it is known.

    Answers come in any order. A copy is one that is under way, or one of the last so many answered.
    """
    known = KnownRequests(ANSWERED, REPLIES)
    owed: dict[int, int] = {}
    answered: list[int] = []
    replies: dict[int, bytes] = {}
    for kind, which, size in steps:
        key = (0, bytes((which,)))
        if kind == "answer":
            if which not in owed:
                continue
            reply = bytes((which,)) * size
            assert known.answer(key, reply) == owed.pop(which)
            answered = [each for each in answered if each != which] + [which]
            replies[which] = reply
        elif which in owed:
            assert known.arrive(key) is RequestArrival.COPY_UNDER_WAY
            owed[which] += 1
        elif which in answered[-ANSWERED:]:
            assert known.arrive(key) is RequestArrival.COPY_ANSWERED
            assert known.reply(key) in (replies[which], None)
        else:
            assert known.arrive(key) is RequestArrival.FIRST
            owed[which] = 1
        kept = [known.reply((0, bytes((each,)))) for each in range(8)]
        assert sum(len(each) for each in kept if each is not None) <= REPLIES
    for which, count in owed.items():
        assert known.answer((0, bytes((which,))), b"") == count
