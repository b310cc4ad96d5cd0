"""Random namespaces, written in each format and read back."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings

from bridge.model import entity as model
from bridge.topology import definitions
from policies.readers import read
from policies.writers import emulator
from tests.fixtures.examples import examples
from tests.unit.policies import writing
from tests.unit.policies.entities import TEXTS, namespaces

SETTINGS = settings(max_examples=examples(60), deadline=None)


def same(namespace: model.Namespace, **changes: Any) -> model.Namespace:
    """Return a namespace with its entities sorted, so that their order does not matter."""
    ordered = definitions.assemble(namespace, definitions.entities(namespace))
    return dataclasses.replace(ordered, **changes)


@SETTINGS
@given(namespaces(has_keys=False))
def test_config_json_comes_back(namespace: model.Namespace) -> None:
    """Any Config.json is read as it was meant."""
    text, lost = emulator.write(namespace)
    assert same(namespace) == same(read(text, "Config.json").namespace)
    assert not lost


@SETTINGS
@given(namespaces())
def test_a_template_comes_back(namespace: model.Namespace) -> None:
    """A template's full names, escaped texts and authorization rules are read as meant."""
    assert same(namespace) == same(read(writing.arm(namespace), "template.json").namespace)


@pytest.mark.long
@SETTINGS
@given(namespaces())
def test_lists_of_az_come_back(namespace: model.Namespace) -> None:
    """Any list of az is read as it was meant."""
    assert same(namespace) == same(read(writing.az(namespace), "az.json").namespace)


@pytest.mark.long
@SETTINGS
@given(namespaces(values=TEXTS, has_metadata=False, has_prefilter=False))
def test_a_terraform_state_comes_back(namespace: model.Namespace) -> None:
    """A state of the azurerm provider is read as it was meant."""
    assert same(namespace) == same(read(writing.terraform(namespace), "state.json").namespace)


@SETTINGS
@given(namespaces())
def test_atom_feeds_come_back(namespace: model.Namespace) -> None:
    """A feed of everything is read as it was meant, types of filter values included."""
    read_back = read(writing.atom(namespace), "feed.xml").namespace

    assert same(namespace, authorization_rules=()) == same(read_back)


@pytest.mark.long
@SETTINGS
@given(namespaces(values=TEXTS))
def test_an_explorer_export_comes_back(namespace: model.Namespace) -> None:
    """An export of Service Bus Explorer is read as it was meant."""
    read_back = read(writing.explorer(namespace), "export.xml").namespace

    assert same(namespace, authorization_rules=()) == same(read_back)


@pytest.mark.long
@SETTINGS
@given(namespaces())
def test_the_order_of_a_template_does_not_matter(namespace: model.Namespace) -> None:
    """Resources of a template may stand in any order, rules before their subscriptions."""
    import json

    document = json.loads(writing.arm(namespace))
    document["resources"].reverse()
    reading = read(json.dumps(document), "template.json")

    def unordered(whole: model.Namespace) -> set[Any]:
        return {
            (each.path, getattr(each, "max_delivery_count", 0))
            for each in definitions.entities(whole)
        }

    assert unordered(namespace) == unordered(reading.namespace)
