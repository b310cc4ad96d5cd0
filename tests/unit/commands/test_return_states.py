"""States of sessions that are kept until a way back sets them."""

from __future__ import annotations

import tracemalloc
from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from bridge.commands.migration.return_states import IN_MEMORY_BYTES, KeptStates
from bridge.model.session_id import fold
from bridge.topology.parts import SESSION_STATE_BYTES_MAX


@given(
    states=st.dictionaries(
        st.sampled_from(["a", "b", "c", "d"]),
        st.none() | st.binary(max_size=3) | st.just(b"x" * 70),
    )
)
def test_each_state_is_given_back_as_it_was(states: dict[str, bytes | None]) -> None:
    """An empty one is none; it is found by its session in any case."""
    kept = KeptStates()
    for session_id, state in states.items():
        kept.keep(session_id, state)
    wanted = {session_id: state or None for session_id, state in states.items()}
    assert dict(kept.states()) == wanted
    assert dict(kept.states()) == wanted, "again"
    assert dict(kept.digests.values()) == {
        session_id: None if state is None else sha256(state).digest()
        for session_id, state in wanted.items()
    }
    assert all(kept.has(each) for each in states)
    assert all(fold(each) in kept.digests for each in states)
    assert not kept.has("e")
    kept.close()


def test_states_take_no_more_memory_however_many_they_are() -> None:
    """One at a time is in memory when they are set."""
    kept, count = KeptStates(), 200
    tracemalloc.start()
    try:
        for n in range(count):
            kept.keep(f"s{n}", n.to_bytes(2) * (SESSION_STATE_BYTES_MAX // 2))
        assert sum(state == n.to_bytes(2) * (SESSION_STATE_BYTES_MAX // 2)
                   for n, (_, state) in enumerate(kept.states())) == count  # fmt: skip
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        kept.close()
    assert most < 3 * IN_MEMORY_BYTES < count * SESSION_STATE_BYTES_MAX // 8
