"""States of sessions that are set between their reading and the hold of their entity."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from bridge.model.session_id import fold
from bridge.operations.migration.session_states import set_behind

states = st.dictionaries(st.sampled_from(["a", "B", "c"]), st.sampled_from([b"x", b"y"]))


@given(read=states, held=states)
def test_each_state_that_came_went_or_changed_is_found(
    read: dict[str, bytes], held: dict[str, bytes]
) -> None:
    """A session that had none may be listed, or not."""
    listed = {
        fold(each): (each, sha256(read[each]).digest() if each in read else None)
        for each in {*read, "a"}
    }
    found = set_behind(
        listed, {each.upper(): sha256(state).digest() for each, state in held.items()}
    )
    assert (found is None) == (read == held)
    if found is not None:
        name = next(each for each in ("a", "B", "c") if fold(each) == fold(found))
        assert read.get(name) != held.get(name)
