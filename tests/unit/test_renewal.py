"""When an issuer's keys are fetched, and for how long they are kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.model.issuers.renewal import (
    APART_S,
    KEPT_S,
    RENEW_FILE_S,
    RENEW_S,
    RETRY_S,
    KeysRenewal,
)
from bridge.model.issuers.web_keys import KeySet, WebKey

KEYS = KeySet((WebKey(kid="k", algorithms=frozenset(("RS256",)), key=None),))


def test_keys_are_fetched_at_once_and_then_every_five_minutes() -> None:
    """A failed fetch is repeated sooner, and leaves the keys."""
    renewal = KeysRenewal()
    assert renewal.due_s <= 0
    assert renewal.keys(0) is None
    renewal.begin(100)
    assert renewal.succeed(KEYS, 101)
    assert renewal.due_s == 100 + RENEW_S
    renewal.begin(400)
    assert renewal.fail("away")
    assert renewal.keys(401) is KEYS
    assert renewal.due_s == 400 + RETRY_S
    renewal.begin(430)
    assert not renewal.fail("away"), "the same failure is told once"
    assert not renewal.succeed(KEYS, 431), "the same keys are told once"


def test_keys_are_kept_for_a_day_without_their_issuer() -> None:
    """From the last fetch that succeeded; those of a file for ever."""
    renewal, of_file = KeysRenewal(), KeysRenewal(is_file=True)
    for each in (renewal, of_file):
        each.begin(0)
        each.succeed(KEYS, 0)
        each.begin(KEPT_S - 1)
        each.fail("away")
        assert each.keys(KEPT_S) is KEYS
    assert renewal.keys(KEPT_S + 1) is None
    assert of_file.keys(10 * KEPT_S) is KEYS
    assert of_file.due_s == KEPT_S - 1 + RENEW_FILE_S


def test_a_missed_key_brings_the_next_fetch_forward() -> None:
    """One that is asked for during a fetch has another fetch: the first may be older."""
    renewal = KeysRenewal()
    renewal.begin(0)
    renewal.ask()
    renewal.succeed(KEYS, 1)
    assert renewal.due_s == APART_S
    renewal.begin(10)
    renewal.succeed(KEYS, 11)
    assert renewal.due_s == 10 + RENEW_S


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "succeed", "fail", "wait"]),
        st.floats(0, 2 * KEPT_S, allow_nan=False),
    ),
    max_size=40,
)


@given(steps=STEPS)
def test_fetches_are_ten_seconds_apart_and_never_stop(steps: list[tuple[str, float]]) -> None:
    """With any questions and failures: the next is due in 10 s to 5 min, and keys are young."""
    renewal, now_s, fetched_s, begun_s = KeysRenewal(), 0.0, None, None
    for what, wait_s in steps:
        if what == "wait":
            now_s += wait_s
        elif what == "ask":
            renewal.ask()
            assert begun_s is None or renewal.due_s == begun_s + APART_S
        else:
            now_s = max(now_s, renewal.due_s)
            assert begun_s is None or now_s - begun_s >= APART_S
            renewal.begin(now_s)
            begun_s = now_s
            now_s += min(wait_s, 10)
            if what == "succeed":
                renewal.succeed(KEYS, now_s)
                fetched_s = now_s
            else:
                renewal.fail("away")
        if begun_s is not None:
            assert APART_S <= renewal.due_s - begun_s <= RENEW_S
        is_young = fetched_s is not None and now_s - fetched_s <= KEPT_S
        assert (renewal.keys(now_s) is KEYS) == is_young
