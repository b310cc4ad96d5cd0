"""Failpoints: where they are, the settings that arm one, and those that are refused."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.broker.failpoint import HAND_OVERS, POINTS, Failpoint, failpoints

BRIDGE = Path(__file__).parents[2] / "bridge"

VERBS = frozenset({"ack", "reject", "nack", "publish", "submit", "move"})
"""Whatever takes a message out of a queue of RabbitMQ, or puts one in."""

PASSING = frozenset({"failpoint", "point", "site", "SITE"})
"""Who is told its point by the caller says so in one of these names."""

ELSEWHERE = {
    ("sender.py", "ask"): "publishes by `publish`, which has its points",
    ("ownership.py", "_put_token"): "likewise",
    ("stored_states.py", "_set"): "likewise",
    ("settlements.py", "_flush"): "likewise; what is not told is found by RabbitMQ's count",
    ("hand_over.py", "_show"): "likewise; repeated until it is told, or the lock ends",
    ("view.py", "write_again"): "likewise; it is true for ever, and may stand there twice",
    ("stream_tail.py", "_mark"): "likewise; a mark, which nobody else reads",
}
"""Functions that need no point of their own."""


def functions() -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Return the innermost functions of all that talks to RabbitMQ above the floor of `broker`."""
    for path in sorted(BRIDGE.rglob("*.py")):
        if path.relative_to(BRIDGE).parts[0] in (
            "engine",
            "message",
            "sidecar",
            "gateway",
            "admin",
            "cli",
        ):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield path, node


def own(function: ast.AST) -> Iterator[ast.AST]:
    """Return the nodes of a function without those of the functions in it."""
    for node in ast.iter_child_nodes(function):
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from own(node)


def settles(node: ast.AST) -> bool:
    """Whether this takes a message out of a queue, or puts one in."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in VERBS
    )


def names_in(node: ast.AST) -> Iterator[str]:
    """Return what could name a point: texts, variables, arguments, and passes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg


def test_every_publish_and_ack_has_a_point() -> None:
    """Each publish and settlement names a site or point of the tables, or is given one."""
    known = set(HAND_OVERS) | set(failpoints())
    without = {
        (path.name, function.name)
        for path, function in functions()
        if any(settles(node) for node in own(function))
        and not any(
            name in known or name in PASSING
            for node in ast.walk(function)
            for name in names_in(node)
        )
    }
    assert without == set(ELSEWHERE)


def test_every_point_is_somewhere_in_the_bridge() -> None:
    """A point that nobody passes would never be tested."""
    texts = {
        node.value
        for path in BRIDGE.rglob("*.py")
        if path.name != "failpoint.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    sites = {site for site in HAND_OVERS if not site.startswith(("bench.", "test."))}
    assert {name for name in sites | set(POINTS) if name not in texts} == set()


def test_each_hand_over_has_its_three_points() -> None:
    """A site is published, confirmed and acked, and can be killed at each."""
    names = set(failpoints())

    assert names >= {
        f"{site}.{step}" for site in HAND_OVERS for step in ("published", "confirmed", "acked")
    }


@pytest.mark.parametrize("setting", ["", "test.hop.published", "test.hop.acked:3"])
def test_a_point_is_armed_by_its_name(setting: str) -> None:
    """The name before the colon is what is armed."""
    assert setting.partition(":")[0] == Failpoint(setting).name


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("nope", "no failpoint nope"),
        ("test.hop.acked:0", "not a number of passes"),
        ("test.hop.acked:x", "not a number of passes"),
    ],
)
def test_a_wrong_setting_is_refused(setting: str, sentence: str) -> None:
    """A crash test that would never crash does not start."""
    with pytest.raises(ValueError, match=sentence):
        Failpoint(setting)
