"""The wait that a busy server asks for holds for whoever calls next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.remote.errors import RemoteBusy, RemoteTimeout, error_of
from bridge.remote.patience import BUSY_S, Pause


class Clock:
    """A time that a test sets."""

    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("busy"), st.integers(0, 20)),
        st.tuples(st.just("time passes"), st.integers(0, 12)),
        st.tuples(st.just("other"), st.just(0)),
    ),
    max_size=20,
)


@given(STEPS)
def test_nothing_is_asked_before_each_pause_is_over_and_all_of_it_afterwards(
    steps: list[tuple[str, int]],
) -> None:
    """However pauses overlap: the latest end counts, and what is told is what is left of it."""
    clock = Clock()
    pause, until_s = Pause(clock), 0.0
    for kind, number in steps:
        match kind:
            case "busy":
                words = f"Please wait {number} seconds and try again." if number else "50009"
                pause.begin(error_of("com.microsoft:server-busy", words))
                until_s = max(until_s, clock.now_s + max(number, BUSY_S))
            case "other":
                pause.begin(RemoteTimeout("com.microsoft:timeout"))
            case _:
                clock.now_s += number
        if clock.now_s >= until_s:
            pause.check()
            continue
        with pytest.raises(RemoteBusy) as caught:
            pause.check()
        assert caught.value.pause_s == until_s - clock.now_s
        assert not caught.value.in_doubt
