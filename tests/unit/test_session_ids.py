"""Session ids have no case: what folding makes equal, in every version of Python, and who folds."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.model import entity as model
from bridge.model.session_id import fold
from bridge.topology.shards import session_key, spells_sessions

ROOT = Path(__file__).parents[2]
FOLDED_SHA256 = "bf6e40db66a4947c67bbc64f4f4de7701c610a3e26f9ad3c615c3aef534a2b4a"
"""Of all characters up to U+FFFF, folded; shards and partitions are chosen by them for good."""

UNFOLDED = {"session_id", "session_id_in", "session_id_of"}
"""Names of a session id as somebody has spelt it."""

ALLOWED = {
    # A message's partition key and its session id, as Azure's SDKs compare them.
    ("bridge/wire/mapping/inward.py", "key != session_id"),
    ("bridge/client/messages.py", "key != self.session_id"),
}


@pytest.mark.parametrize(
    ("one", "other"), [("SessionId", "sessionId"), ("zoë", "ZOË"), ("ж1", "Ж1"), ("ǆ", "Ǆ")]
)
def test_ids_that_differ_in_case_alone_are_equal(one: str, other: str) -> None:
    """In any alphabet."""
    assert fold(one) == fold(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("straße", "STRASSE"),
        ("\u0131", "I"),
        ("\u0131", "i"),
        ("\u017f", "s"),
        ("\u0149", "\u02bcN"),
        ("a", "à"),
        (" a", "a"),
    ],
)
def test_ids_that_differ_otherwise_are_not(one: str, other: str) -> None:
    """A letter stays whose upper case is several characters, and no letter becomes ASCII."""
    assert fold(one) != fold(other)


def test_folding_is_the_same_in_every_version_of_python() -> None:
    """Bridges of two versions choose the same queues."""
    folded = "".join(fold(chr(each)) for each in range(0x10000))
    assert len(folded) == 0x10000
    raw = folded.encode(errors="surrogatepass")
    assert hashlib.sha256(raw).hexdigest() == FOLDED_SHA256
    assert fold(folded) == folded
    assert fold("\U00010428") == "\U00010428"


def of(count: int, *, folds: bool) -> model.Queue:
    """A session queue."""
    return model.Queue(
        name="q", requires_session=True, session_shards=count, folds_session_ids=folds
    )


@given(
    letters=st.lists(st.tuples(st.characters(), st.booleans()), max_size=12),
    count=st.sampled_from((1, 2, 4, 64)),
    folds=st.booleans(),
)
def test_spellings_of_one_id_are_one_session(
    letters: list[tuple[str, bool]], count: int, folds: bool
) -> None:
    """But in an older entity with several shards, which health names."""
    one = "".join(letter for letter, _ in letters)
    other = "".join(fold(letter) if is_upper else letter for letter, is_upper in letters)
    queue = of(count, folds=folds)
    assert fold(one) == fold(other)
    assert session_key(queue, one) == session_key(queue, other) or spells_sessions(queue)
    assert spells_sessions(queue) == (count > 1 and not folds)


def name_of(node: ast.expr) -> str:
    """The last name of an expression; of a call, that of what is called."""
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def is_unfolded(node: ast.expr) -> bool:
    """Whether an expression is a session id as it was spelt, or a tuple with one."""
    if isinstance(node, ast.Tuple):
        return any(map(is_unfolded, node.elts))
    return name_of(node) in UNFOLDED


def compared(tree: ast.AST) -> Iterator[ast.expr]:
    """The places that compare session ids, or look one up, or hash one, without folding."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            is_of_none = all(isinstance(each, ast.Is | ast.IsNot) for each in node.ops)
            if any(map(is_unfolded, sides)) and not is_of_none:
                yield node
        elif isinstance(node, ast.Subscript) and is_unfolded(node.slice):
            yield node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            looks_up = node.func.attr in ("get", "pop", "setdefault", "add", "discard", "index")
            if looks_up and any(map(is_unfolded, node.args[:1])):
                yield node
            if node.func.attr == "encode" and is_unfolded(node.func.value):
                yield node


FILES = sorted(each for each in (ROOT / "bridge").rglob("*.py"))


def test_no_place_compares_session_ids_that_are_not_folded() -> None:
    """`fold`, `session_key` and `members_of` compare them; an id as it was spelt is passed on."""
    found = {
        (str(path.relative_to(ROOT)), ast.unparse(node))
        for path in FILES
        for node in compared(ast.parse(path.read_text()))
    }
    assert found == ALLOWED


@pytest.mark.parametrize(
    "line",
    [
        "receiver.session_id == session_id",
        "session_id_in(table) != wanted",
        "(path.key, session_id) in sessions",
        "sessions.get(session_id)",
        "sessions[path.key, receiver.session_id] = link",
        "sha256(session_id.encode())",
    ],
)
def test_a_place_that_compares_them_is_found(line: str) -> None:
    """In any of the ways in which ids were compared before they were folded."""
    assert list(compared(ast.parse(line)))


@pytest.mark.parametrize(
    "line", ["session_id is None", "sessions[fold(session_id)]", "fold(session_id) == folded"]
)
def test_a_place_that_folds_them_is_not(line: str) -> None:
    """Nor one that asks whether there is an id."""
    assert not list(compared(ast.parse(line)))
