"""Inputs that are damaged somewhere: read as far as they make sense, or refused by name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bridge.model.errors import ServiceBusError
from bridge.topology import compiler
from bridge.topology.capabilities import Capabilities
from bridge.topology.plain import compile_plain
from policies import report, report_table
from policies.errors import ReadError
from policies.readers import read
from tests.fixtures.examples import examples

GOLDEN = Path(__file__).parent / "golden"
JSON_INPUTS = {
    name: (GOLDEN / name).read_text()
    for name in (
        *("Config.json", "az.json", "bicep.json", "definitions.json"),
        *("plan.json", "state.json", "template.json"),
    )
}
JSON_INPUTS["template.json"] = JSON_INPUTS["template.json"].replace(
    '"keepDays": { "type": "int" }', '"keepDays": { "type": "int", "defaultValue": 14 }'
)
XML_INPUTS = {name: (GOLDEN / name).read_text() for name in ("explorer.xml", "feeds.xml")}
INPUTS = JSON_INPUTS | XML_INPUTS

TEXTS = st.sampled_from(
    (
        *("", " ", "x", "a/b/c", "true", "null", "9" * 24, "PT1S", "-PT1S", "P99999999999D"),
        *("1=1 AND", "(", "^(?<a>b)$", "sb://x/y", "/subscriptions/x", "\U0001f600", "x" * 3_000),
        *("[parameters('x')]", "[copyIndex()]", "[concat(]", "[[[", "[toLower(1)]", "[first('')]"),
        *("[range(0,100000000)]", "[padLeft('a',99999999)]", "[map(1,lambda('x',1))]"),
        *("[resourceId()]", "[resourceId('a')]", "[mul(9223372036854775807,9)]", "[div(1,0)]"),
    )
)
VALUES: st.SearchStrategy[Any] = (
    st.sampled_from(
        (None, True, False, 0, -1, 2**63, 10**30, 1.5, [], {}, [[]], [None], {"a": None}, ["a"])
    )
    | TEXTS
)


def take(text: str) -> None:
    """Read, compile and report: all of it, or a refusal in words."""
    try:
        reading = read(text, "input")
        for compiled in (compiler.compile, compile_plain):
            compiled(reading.namespace, Capabilities.of("4.3"))
    except (ReadError, ServiceBusError) as refused:
        assert str(refused).strip()  # noqa: PT017
        return
    made = report.make(reading)
    assert json.loads(report.to_json(made))
    assert report_table.table(made)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container in a document with each of its keys or indexes."""
    keys = value if isinstance(value, dict) else range(len(value))
    found = [(value, key) for key in keys]
    for _, key in [*found]:
        if isinstance(value[key], dict | list):
            found += places(value[key])
    return found


@settings(max_examples=examples(250), deadline=None)
@given(
    st.sampled_from(sorted(JSON_INPUTS)),
    st.lists(st.tuples(st.integers(0), VALUES | st.just(...)), min_size=1, max_size=4),
)
def test_a_wrong_value_anywhere(name: str, changes: list[tuple[int, Any]]) -> None:
    """Of another type, of another size, or missing."""
    text = re.sub(r"^\s*//.*$", "", JSON_INPUTS[name], flags=re.MULTILINE)
    document = json.loads(text)
    for which, value in changes:
        found = places(document)
        if not found:
            break
        container, key = found[which % len(found)]
        if value is ...:
            del container[key]
        else:
            container[key] = json.loads(json.dumps(value))
    take(json.dumps(document))


@settings(max_examples=examples(80), deadline=None)
@given(st.sampled_from(sorted(XML_INPUTS)), st.integers(0), TEXTS, st.booleans())
def test_a_wrong_element_anywhere(name: str, which: int, value: str, is_name: bool) -> None:
    """Another text, or another name."""
    text = XML_INPUTS[name]
    pattern = r"</?([A-Za-z:]+)" if is_name else r">([^<>]*)<"
    found = [*re.finditer(pattern, text)]
    match = found[which % len(found)]
    wrong = "Filter" if is_name else value.replace("<", "&lt;")
    take(text[: match.start(1)] + wrong + text[match.end(1) :])


@settings(max_examples=examples(120), deadline=None)
@given(
    st.sampled_from(sorted(INPUTS)),
    st.integers(0),
    st.text('{}[]",:<>/&\\\n\0', max_size=2),
    st.booleans(),
)
@example(name="bicep.json", where=1181, junk="", is_cut=False)  # the type of nothing: "amespaces"
def test_a_text_that_is_cut_off_or_garbled(name: str, where: int, junk: str, is_cut: bool) -> None:
    """At any place."""
    text = INPUTS[name]
    at = where % len(text)
    take(text[:at] + junk + ("" if is_cut else text[at + 1 :]))


@pytest.mark.parametrize("name", sorted(INPUTS))
def test_line_ends_of_windows_change_nothing(name: str) -> None:
    """The same namespace."""
    windows = INPUTS[name].replace("\r\n", "\n").replace("\n", "\r\n")
    assert read(windows, "x").namespace == read(INPUTS[name], "x").namespace


@pytest.mark.parametrize("nested", ["[" * 5_000, '{"a":' * 5_000, "<a>" * 5_000 + "</a>" * 5_000])
def test_what_is_nested_too_deeply_is_refused(nested: str) -> None:
    """By name, and not by an interpreter that has no stack left."""
    with pytest.raises(ReadError, match="nest"):
        read(nested, "input")


def test_variables_that_grow_without_end_are_stopped() -> None:
    """Each is twice the one before: the value is not known, and the queue is left out by name."""
    variables = {"v0": "a" * 100} | {
        f"v{n}": f"[concat(variables('v{n - 1}'), variables('v{n - 1}'))]" for n in range(1, 60)
    }
    queue = {
        "type": "Microsoft.ServiceBus/namespaces/queues",
        "apiVersion": "2021-11-01",
        "name": "[concat('shop/', variables('v59'))]",
    }
    template = {
        "$schema": "https://schema.management.azure.com/schemas/deploymentTemplate.json#",
        "variables": variables,
        "resources": [queue],
    }
    reading = read(json.dumps(template), "input")
    assert reading.namespace.queues == ()
    assert "has more than 131072 parts" in " ".join(each.message for each in reading.findings)
