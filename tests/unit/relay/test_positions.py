"""Where keys and values stand in a file of TOML."""

from __future__ import annotations

import json
import math
import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.relay.plan.positions import NoToml, Path, Position, read_toml
from tests.fixtures.examples import examples

WORDS = st.text("ab-_09", min_size=1, max_size=4)
NAMES = WORDS | st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=4)
SPACES = st.sampled_from(["", " ", "  ", "\t"])
GAPS = st.sampled_from(["", " ", "\n", " # a, [comment] = {'x'}\n", "\r\n"])


def basic(text: str) -> str:
    """Return a text as a basic string."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


@st.composite
def strings(draw: st.DrawFn) -> str:
    """Return a string in one of its forms."""
    text = draw(st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("'\"#[")))
    forms = [
        basic(text),
        f'"""{basic(text)[1:-1]}"""',
        '"""\\\n  a ""b\n"""',
        '"""x"""""',
        "''''a'''",
    ]
    if "'" not in text:
        forms += [f"'{text}'", f"'''\n{text}\n'''", f"'''{text}'''''"]
    return draw(st.sampled_from(forms))


SCALARS = st.one_of(
    strings(),
    st.integers(-(2**63), 2**63 - 1).map(str),
    st.sampled_from(
        ["true", "false", "1.5e3", "inf", "0xff", "1_000", "1979-05-27 07:32:00", "07:32:00"]
    ),
)


@st.composite
def keys(draw: st.DrawFn, name: str) -> str:
    """Return a key in one of its forms."""
    is_bare = bool(name) and all(each in "ab-_09" for each in name)
    forms = [basic(name)] + [name] * is_bare + [f"'{name}'"] * ("'" not in name)
    return draw(st.sampled_from(forms))


@st.composite
def values(draw: st.DrawFn, depth: int = 0) -> str:
    """Return a value of any kind."""
    kind = draw(st.sampled_from(["scalar", "scalar", "array", "table"])) if depth < 2 else "scalar"
    if kind == "scalar":
        return draw(SCALARS)
    if kind == "array":
        parts = draw(st.lists(values(depth + 1), max_size=3))
        inside = ",".join(draw(GAPS) + each + draw(GAPS) for each in parts)
        return f"[{inside}{',' if parts and draw(st.booleans()) else ''}{draw(GAPS)}]"
    names = draw(st.lists(NAMES, max_size=3, unique=True))
    pairs = [f"{draw(SPACES)}{draw(keys(name))} = {draw(values(2))}" for name in names]
    return "{" + " ,".join(pairs) + draw(SPACES) + "}"


@st.composite
def pairs(draw: st.DrawFn) -> str:
    """Return lines of keys and values."""
    found = []
    for name in draw(st.lists(NAMES, max_size=3, unique=True)):
        dotted = draw(keys(name))
        if draw(st.booleans()):
            dotted += draw(SPACES) + "." + draw(SPACES) + draw(keys(draw(NAMES)))
        line = f"{draw(SPACES)}{dotted}{draw(SPACES)}={draw(SPACES)}{draw(values())}{draw(SPACES)}"
        found.append(line + draw(st.sampled_from(["\n", "# why\n", "\r\n"])))
    return "".join(found)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Return a file with tables and arrays of tables."""
    parts = [draw(pairs())]
    for name in draw(st.lists(WORDS, max_size=3, unique=True)):
        header = draw(keys("t" + name))
        if draw(st.booleans()):
            parts.append(f"[{draw(SPACES)}{header}]\n{draw(pairs())}")
            continue
        for _ in range(draw(st.integers(1, 3))):
            parts.append(f"[[{header}{draw(SPACES)}]] # one\n{draw(pairs())}")
            if draw(st.booleans()):
                parts.append(f"[{header} . below{draw(WORDS)}]\n{draw(pairs())}")
    return draw(GAPS) + "".join(parts)


def leaves(value: Any, path: Path = ()) -> list[tuple[Path, Any]]:
    """Return all values that hold no others, and empty ones, with their paths."""
    if isinstance(value, dict):
        return [each for name, inner in value.items() for each in leaves(inner, (*path, name))]
    if isinstance(value, list):
        return [each for at, inner in enumerate(value) for each in leaves(inner, (*path, at))]
    return [(path, value)]


@settings(max_examples=examples(150), deadline=None)
@given(documents())
def test_the_place_of_each_value_has_that_value(text: str) -> None:
    """In any form of key, string, array and table that TOML has."""
    try:
        expected = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        with pytest.raises(NoToml):
            read_toml(text)
        return

    found, positions = read_toml(text)

    assert found == expected or "nan" in text
    paths = dict(leaves(expected))
    for path, value in paths.items():
        start, end = positions.values[path]
        read = tomllib.loads(f"x = {text[start:end]}")["x"]
        assert read == value or (isinstance(value, float) and math.isnan(value))
        assert path in positions.keys
        line, column = positions.of_value(path).line, positions.of_value(path).column
        assert text.split("\n")[line - 1][column - 1] == text[start]


TEXT = """\
control = "local/lock"

[sides.azure]
env = "A"

[[routes]]
from = "azure/a"   # one
to = "local/a"

[[routes]]
"from" = 'azure/b'
reply-to = { "a b" = "c" }
"""


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        (("control",), (1, 1), (1, 11)),
        (("sides", "azure"), (3, 1), (3, 1)),
        (("sides", "azure", "env"), (4, 1), (4, 7)),
        (("sides", "azure", "id"), (3, 1), (3, 1)),
        (("routes", 0), (6, 1), (6, 1)),
        (("routes", 0, "to"), (8, 1), (8, 6)),
        (("routes", 1, "from"), (11, 1), (11, 10)),
        (("routes", 1, "to"), (10, 1), (10, 1)),
        (("routes", 1, "reply-to", "a b"), (12, 14), (12, 22)),
        (("nothing",), (1, 1), (1, 1)),
    ],
)
def test_a_key_that_is_missing_is_where_its_table_is(
    path: Path, key: tuple[int, int], value: tuple[int, int]
) -> None:
    """Lines and columns count from 1."""
    _, positions = read_toml(TEXT)

    assert positions.of_key(path) == Position(*key)
    assert positions.of_value(path) == Position(*value)


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("a = 1\nb = = 2\n", (2, 5), "Invalid value"),
        ("a = 1\na = 2\n", (2, 6), "Cannot overwrite a value"),
        ('a = """x', (1, 9), "Unterminated string at the end"),
        ("x = " + "[" * 5_000, (1, 1), "it nests too deeply"),
    ],
)
def test_what_is_no_toml_has_a_place(text: str, position: tuple[int, int], words: str) -> None:
    """The place that Python's reader names, or the end of the text."""
    with pytest.raises(NoToml) as caught:
        read_toml(text)

    assert caught.value.position == Position(*position)
    assert caught.value.text == words
