"""No background task ends unnoticed: where the bridge begins tasks, and who looks after them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.integration import test_standing_work as kept

BRIDGE = Path(__file__).parents[3] / "bridge"

ELSEWHERE = frozenset({"background", "client", "testing"})
"""The supervisor itself; and what runs in applications and in their tests."""

BEGINS = frozenset({"create_task", "ensure_future", "TaskGroup", "Thread", "Timer"})

VERBS = frozenset({"keep", "repeat", "keep_connected"})
"""Those of the supervisor, and of what keeps connections by it."""

AWAITED = {
    ("broker/node/private.py", "_start_server"): "waits for the node's process, nothing else",
    ("broker/reconnect.py", "_run"): "awaited by the function that begins it",
    ("broker/streams/stream_reader.py", "comes"): "awaited by the function that begins it",
    ("cli/overdue.py", "begin"): "a thread that ends the process, if it is there so long",
    ("cli/stopping.py", "within"): "awaited by the function that begins it",
    ("commands/collecting.py", "collected"): "awaited by the function that begins it",
    ("commands/bench_works.py", "_all"): "awaited, or cancelled, by the function that begins it",
    (
        "commands/migration/meeting.py",
        "wait",
    ): "awaited, or cancelled, by the function that begins it",
    (
        "commands/migration/meeting.py",
        "together",
    ): "awaited, or cancelled, by the function that begins it",
    ("commands/running.py", "_run"): "awaited by the function that begins it",
    ("commands/taking_sources.py", "_lock"): "awaited there, or by `close`",
    ("commands/undo_reading.py", "look"): "awaited by the function that begins it",
    ("commands/watching.py", "unless"): "awaited, or cancelled, by the function that begins it",
    (
        "engine/administration/bulk_declaration.py",
        "_carry_out",
    ): "awaited by the function that begins it",
    (
        "engine/administration/bulk_declaration.py",
        "at_once",
    ): "awaited by the function that begins it",
    ("engine/ownership/ownership.py", "stand_by"): "awaited by each caller",
    ("engine/receiving/receivers.py", "end"): "awaited by the function that begins it",
    ("engine/sessions/acceptance.py", "_start"): "awaited by `_first`, which begins it",
    ("gateway/client/work.py", "spawn"): "its error ends the client's connection (`on_failed`)",
    ("remote/authorization.py", "ensure"): "awaited by each caller",
    (
        "relay/running/route_run.py",
        "_unless_stopped",
    ): "awaited, or cancelled, by the function that begins it",
    (
        "relay/running/route_run.py",
        "_until_one_ends",
    ): "awaited, or cancelled, by the function that begins it",
    ("remote/stream.py", "__init__"): "tells the connection that it is lost when it ends",
    ("remote/stream.py", "_run"): "what ends the writing ends the reading, which tells",
    ("rest/reception.py", "message"): "awaited, or cancelled, by the function that begins it",
    (
        "sidecar/leader/leader.py",
        "_first",
    ): "its error is counted as unhandled; the term ends all the same",
    ("sidecar/leader/leader.py", "run"): "awaited by the function that begins it",
    ("sidecar/leader/leader.py", "start"): "its error ends the leader's term",
    ("sidecar/subscriptions/left_out.py", "_ask"): "awaited by the function that begins it",
    (
        "sidecar/leader/target_search.py",
        "_seek",
    ): "awaited, or cancelled, by the function that begins it",
}
"""Tasks outside of the supervisor and of `background.tasks`, and who sees how they end."""


def functions(
    names: Iterable[str],
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Return the innermost functions of a bridge's process, of files that have one of the names."""
    for path in sorted(BRIDGE.rglob("*.py")):
        name = path.relative_to(BRIDGE)
        if name.parts[0] in ELSEWHERE:
            continue
        text = path.read_text()
        if any(f"{each}(" in text for each in names):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield str(name), node


def calls(node: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Return the calls in a function, but for those of functions in it."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.Call):
            called = each.func
            if isinstance(called, ast.Attribute | ast.Name):
                yield called.attr if isinstance(called, ast.Attribute) else called.id, each
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from calls(each)


def test_every_task_stands_under_the_supervisor_or_is_awaited() -> None:
    """A new one that nobody looks after is found here."""
    found = {
        (path, function.name)
        for path, function in functions(BEGINS)
        for name, _ in calls(function)
        if name in BEGINS
    }
    assert found == AWAITED.keys()


def is_the_supervisors(call: ast.Call) -> bool:
    """Whether a call is one of the supervisor's verbs."""
    called = ast.unparse(call.func)
    return called == "keep" or called.endswith(("supervisor.keep", "supervisor.repeat"))


def test_every_kind_of_standing_work_is_ended_in_a_test() -> None:
    """By `tests/integration/test_standing_work.py`, which sees it come back."""
    kinds = set()
    for _, function in functions(VERBS):
        for name, call in calls(function):
            values = {each.arg: each.value for each in call.keywords}
            if name == "keep_connected":
                kinds.add(values["kind"])
            elif name in VERBS and is_the_supervisors(call):
                kinds.add(call.args[0])
    named = {each.value for each in kinds if isinstance(each, ast.Constant)}
    variable = {each.id for each in kinds if isinstance(each, ast.Name)}
    assert variable <= {"kind"}, "the kind of work is a text where the work is begun"
    assert named == kept.KEPT | kept.REPEATED | kept.ACCESS | kept.ELSEWHERE.keys()
