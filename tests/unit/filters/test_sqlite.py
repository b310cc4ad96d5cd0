"""SQLite as a second reader of SQL filters: the same text, the same row, the same answer.

Where the two differ, and the texts made here keep away or the comparison allows for it:

    whole-number overflow, division by 0     the filter fails; SQLite goes on with a real, or NULL
    a double divided by 0                    infinity; NULL in SQLite
    % of doubles                             C#'s remainder; SQLite cuts both to whole numbers
    values of two kinds                      the filter fails; SQLite orders kinds
    LIKE                                     case counts; SQLite does so when told to (a pragma)
    EXISTS(p), property(), newid(), @p, +    not in SQLite, or something else there
    a = b = c, TRUE as a condition           refused; SQLite takes them
    sys.                                     SQLite would want a second table
    a--b                                     twice a sign; a comment in SQLite
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from bridge.model.filters.errors import FilterException
from bridge.model.filters.evaluation import compile_condition, compile_expression
from bridge.model.filters.expression import Comparison
from bridge.model.filters.parser import parse_filter
from tests.fixtures.examples import examples
from tests.unit.filters.subjects import GUID, message, rules

NUMBERS = ("i", "[j k]", "user.d", '"E"')
TEXTS = ("s", "User.[T t]", '"u"')
FLAGS = ("f", "user.g")
COLUMNS = ("i", "j k", "d", "E", "s", "T t", "u", "f", "g")

FAILURES = ("A whole number is divided by zero.", "A whole number is beyond an Int64.")

ALPHABET = "abA%_!'"

whole = st.integers(-20, 20).map(lambda number: f"({number})" if number < 0 else str(number))
decimal = st.sampled_from(["0.0", "1.5", ".25", "2.", "1E1", "25e-1", "101.5E2"])
quoted = st.text(ALPHABET, max_size=5).map(lambda each: "'" + each.replace("'", "''") + "'")


def _sums(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(parts, st.sampled_from(["+", " - ", "*", " + ", "\n- "]), parts).map("".join),
        st.tuples(parts, st.just(" / "), st.sampled_from(["2", "(-3)", "0.5", "i"])).map("".join),
        st.tuples(st.sampled_from(["- ", "+"]), parts).map("".join),
        parts.map("({})".format),
    )


number = st.recursive(st.one_of(st.sampled_from(NUMBERS), whole, decimal), _sums, max_leaves=6)
remainder = st.tuples(
    st.one_of(st.just("i"), whole), st.just(" % "), st.one_of(st.just("i"), whole)
).map("".join)
text = st.one_of(st.sampled_from(TEXTS), quoted)
flag = st.one_of(st.sampled_from(FLAGS), st.sampled_from(["TRUE", "false"]))
compared = st.sampled_from(["=", "<>", "!=", "<", " <= ", ">", ">="])


def _escaped(pattern: str) -> str:
    """A pattern in which ! stands before another character only, and what escapes with it."""
    kept = pattern.replace("!!", "!")
    return "'" + (kept + "a" if kept.endswith("!") else kept).replace("'", "''") + "' ESCAPE '!'"


pattern = st.one_of(text, st.text(ALPHABET, max_size=6).map(_escaped))


def _list(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    choices = st.lists(st.one_of(parts, st.just("NULL")), min_size=1, max_size=4)
    return choices.map(lambda each: " (" + ", ".join(each) + ")")


simple = st.one_of(
    st.tuples(number, compared, number).map("".join),
    st.tuples(remainder, compared, number).map("".join),
    st.tuples(text, compared, text).map("".join),
    st.tuples(flag, st.sampled_from(["=", "<>"]), flag).map("".join),
    st.tuples(st.sampled_from(NUMBERS + TEXTS), st.sampled_from([" IS NULL", " is NOT null"])).map(
        "".join
    ),
    st.tuples(number, st.sampled_from([" IN", " NOT IN"]), _list(number)).map("".join),
    st.tuples(text, st.sampled_from([" in", " NOT in"]), _list(text)).map("".join),
    st.tuples(text, st.sampled_from([" LIKE ", " NOT LIKE "]), pattern).map("".join),
)


def _joined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(parts, st.sampled_from([" AND ", " or ", " OR "]), parts).map("".join),
        parts.map("NOT {}".format),
        parts.map("({})".format),
    )


conditions = st.recursive(simple, _joined, max_leaves=6)

numbers = st.one_of(st.none(), st.integers(-20, 20))
doubles = st.one_of(st.none(), st.sampled_from([-2.5, 0.0, 0.5, 1.0, 3.0, 10.25]))
texts = st.one_of(st.none(), st.text(ALPHABET, max_size=6))
flags = st.one_of(st.none(), st.booleans())
rows = st.tuples(*(numbers,) * 2, *(doubles,) * 2, *(texts,) * 3, *(flags,) * 2)


@pytest.fixture(scope="module", name="sqlite")
def _sqlite() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA case_sensitive_like = ON")
    yield connection
    connection.close()


def _divides_by_zero(expression: str, row: tuple[Any, ...]) -> bool:
    return row[0] == 0 and "/ i" in expression


def _ask(sqlite: sqlite3.Connection, expression: str, row: tuple[Any, ...]) -> bool | None:
    columns = ", ".join(f'? AS "{name}"' for name in COLUMNS)
    query = f"SELECT ({expression}) FROM (SELECT {columns}) AS user"
    (found,) = sqlite.execute(query, row).fetchone()
    return None if found is None else bool(found)


@settings(max_examples=examples(500))
@given(expression=conditions, row=rows)
def test_sqlite_gives_the_same_answer(
    sqlite: sqlite3.Connection, expression: str, row: tuple[Any, ...]
) -> None:
    """True, false and unknown, for every operator that both have."""
    assume(len(expression) <= 1024 and not _divides_by_zero(expression, row))
    view = message(**dict(zip(COLUMNS, row, strict=True)))
    failure = ""
    try:
        found = compile_condition(parse_filter(expression), lambda: GUID)(view)
    except FilterException as error:
        failure = str(error)
        found = None
    if failure:
        event(failure)
        assert failure in FAILURES
        return
    event(str(found))
    assert found == _ask(sqlite, expression, row)
    selection = rules(only=expression).select(view)
    assert bool(selection.matches) == (found is True)
    assert not selection.failures


@given(first=simple, second=simple, third=simple, row=rows)
def test_and_binds_more_than_or_and_not_more_than_both(
    sqlite: sqlite3.Connection, first: str, second: str, third: str, row: tuple[Any, ...]
) -> None:
    """Without parentheses SQLite reads the same tree."""
    expression = f"NOT {first} AND {second} OR {third} AND NOT {second} OR {first}"
    assume(len(expression) <= 1024 and not _divides_by_zero(expression, row))
    view = message(**dict(zip(COLUMNS, row, strict=True)))
    try:
        found = compile_condition(parse_filter(expression), lambda: GUID)(view)
    except FilterException:
        return
    assert found == _ask(sqlite, expression, row)


@settings(max_examples=examples(200))
@given(expression=number, row=rows)
def test_arithmetic_gives_the_same_number(
    sqlite: sqlite3.Connection, expression: str, row: tuple[Any, ...]
) -> None:
    """Precedence, signs and division, seen in the value itself."""
    assume(len(expression) <= 1000 and not _divides_by_zero(expression, row))
    tree = parse_filter(f"{expression} = 0")
    assert isinstance(tree, Comparison)
    view = message(**dict(zip(COLUMNS, row, strict=True)))
    try:
        found = compile_expression(tree.left, lambda: GUID)(view)
    except FilterException:
        return
    columns = ", ".join(f'? AS "{name}"' for name in COLUMNS)
    query = f"SELECT ({expression}) FROM (SELECT {columns}) AS user"
    (expected,) = sqlite.execute(query, row).fetchone()
    assert found == expected
    assert type(found) is type(expected)
