"""JSON with places."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.errors import ReadError
from policies.readers import jsontext

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_every_json_value_is_read_as_pythons_parser_reads_it(
    value: object, indent: int | None, is_ascii: bool
) -> None:
    """The tree's plain value is the value that was written."""
    text = json.dumps(value, indent=indent, ensure_ascii=is_ascii)

    assert value == jsontext.parse(text, "x").plain()


def test_every_value_knows_its_line_and_path() -> None:
    """Lines count from 1; odd keys are quoted in paths."""
    document = jsontext.parse('{\n"a": [\n1,\n{"b c": 2}]\n}', "x")

    places = [str(node.place) for node in document.walk()]

    assert places == [
        "line 1, $",
        "line 2, $.a",
        "line 3, $.a[0]",
        "line 4, $.a[1]",
        'line 4, $.a[1]["b c"]',
    ]


def test_comments_and_a_byte_order_mark_are_taken() -> None:
    """ARM templates may have comments, Windows tools write the mark."""
    text = '\ufeff// one\n{ /* two\n */ "a": "// no comment", // three\n "b": 1 }\n'

    assert jsontext.parse(text, "x").plain() == {"a": "// no comment", "b": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.json: line 1: Expected a JSON value, found the end of the text. Mend the JSON."),
        ('{\n"a": 1,\n}', "f.json: line 3: Expected a key in double quotes, found '}'. Mend the "
         "JSON: no comma before the closing brace, keys in double quotes."),
        ('{"a" 1}', "f.json: line 1: Expected ':' after the key 'a'. Mend the JSON."),
        ('{"a": 1\n"b": 2}', "f.json: line 2: Expected ',' or '}', found '\"b\": 2}'. Mend the "
         "JSON."),
        ("[1 2]", "f.json: line 1: Expected ',' or ']', found '2]'. Mend the JSON."),
        ('["a', "f.json: line 1: A string does not end. Add the closing \"."),
        (r'["\x"]', "f.json: line 1: A string is malformed: Invalid \\escape. Mend the escape."),
        ("{} {}", "f.json: line 1: There is more after the end of the JSON document. Remove it."),
        ('{"a": 1,\n "a": 2}', "f.json: line 2, $.a: The key 'a' is there twice in one object. "
         "Remove one of them."),
        ("[" * 200, "f.json: line 1: More than 100 levels of nesting. Flatten the document."),
    ],
)  # fmt: skip
def test_bad_json_is_refused_with_its_line(text: str, message: str) -> None:
    """The message names file, line and remedy."""
    with pytest.raises(ReadError) as caught:
        jsontext.parse(text, "f.json")

    assert message == str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[\n"\\ud800"]', "line 2: A string has half of a character in it."),
        (f"[\n{'9' * 5000}]", "line 2: A number of 5000 digits."),
    ],
)
def test_what_no_broker_could_keep_is_refused_by_its_line(text: str, said: str) -> None:
    """Not with a traceback, nor when it is written."""
    with pytest.raises(ReadError) as caught:
        jsontext.parse(text, "x")
    assert said in str(caught.value)
