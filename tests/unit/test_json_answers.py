"""What RabbitMQ answers in JSON."""

from __future__ import annotations

import json

import pytest

from bridge.broker.management.json_answers import DEPTH_MAX, read


def test_one_value_that_nests_without_end() -> None:
    """The others beside it are read; of it there is more than any definition may have."""
    deep = '{"a[": ' * 20_000 + '"]"' + "}" * 20_000
    rows = read('[{"v": "\\"[{"}, {"v": ' + deep + '}, {"v": [' + deep + ']}, {"v": [[]]}]')

    assert [rows[0], rows[3]] == [{"v": '"[{'}, {"v": [[]]}]
    for value in (rows[1]["v"], rows[2]["v"][0]):
        text = json.dumps(value)
        assert DEPTH_MAX > text.count("{") > 90
        assert "null" in text


def test_one_number_without_end() -> None:
    """It is none, and the others beside it are read."""
    assert read(f"[{10**99}, -5, {'7' * 5_000}, 1.5]") == [10**99, -5, None, 1.5]


@pytest.mark.parametrize("text", ["", "[" * 20_000, "{" * 20_000 + "]" * 20_000, '"' + "[" * 2_000])
def test_what_is_no_json(text: str) -> None:
    """A document of any depth is an error that callers know."""
    with pytest.raises(ValueError, match="line 1"):
        read(text)
