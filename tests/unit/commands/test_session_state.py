"""States of sessions as options give them, and as lines show them."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.commands.errors import WrongInput
from bridge.commands.session_state import given_state, shown


@given(st.binary())
def test_what_is_shown_of_a_state_can_be_set_again(state: bytes) -> None:
    """A text where its bytes are one, Base64 of any others."""
    found = shown(state)
    if isinstance(found, str):
        assert given_state(found, None, None) == state
    else:
        assert isinstance(found, dict)
        assert given_state(None, None, found["data"]) == state


def test_a_state_is_a_file_with_every_byte(tmp_path: Path) -> None:
    """A file that is not there is wrong input."""
    path = tmp_path / "state"
    path.write_bytes(b"\x00\xff\r\n")
    assert given_state(None, str(path), None) == b"\x00\xff\r\n"
    with pytest.raises(WrongInput, match="No such file"):
        given_state(None, str(tmp_path / "none"), None)


@pytest.mark.parametrize("data", ["a", "????", base64.b64encode(b"x").decode() + " "])
def test_what_is_no_base64_is_refused(data: str) -> None:
    """Nothing is set that somebody did not mean."""
    with pytest.raises(WrongInput, match="no Base64"):
        given_state(None, None, data)


def test_no_state_is_null() -> None:
    """An empty one is an empty text."""
    assert shown(None) is None
    assert shown(b"") == ""
