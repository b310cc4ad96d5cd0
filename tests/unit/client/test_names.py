"""The library has the SDK's public names: modules, methods, their parameters and defaults."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, get_args

import pytest

import bridge.client
from bridge.client.received_message import ServiceBusReceivedMessage
from bridge.message.received import Received
from bridge.wire.basic import Properties
from bridge.wire.record import Record

MODULES = {
    "azure.servicebus": "bridge.client",
    "azure.servicebus.aio": "bridge.client.aio",
    "azure.servicebus.exceptions": "bridge.client.exceptions",
    "azure.servicebus.management": "bridge.client.management",
    "azure.servicebus.aio.management": "bridge.client.aio.management",
}

SPECIAL = {
    *("__enter__", "__exit__", "__aenter__", "__aexit__", "__iter__", "__next__"),
    *("__aiter__", "__anext__", "__len__", "__str__", "__repr__"),
}

MADE_BY_US = {
    *("ServiceBusReceivedMessage", "ServiceBusReceiver", "ServiceBusSender", "ServiceBusSession"),
}
"""A client makes them, and no application."""

OTHERS = {
    "raise_with_traceback": "azure-core's own, long deprecated",
    "from_bytes": "reads AMQP 1.0, which the library does not speak",
    **dict.fromkeys(
        (
            *("as_dict", "deserialize", "from_dict", "serialize", "is_xml_model"),
            "enable_additional_properties_sending",
        ),
        "of the generated model below MessageCountDetails",
    ),
}
"""What the library has not, and why."""

DEFAULTS = {("create_rule", "filter"): "a bridge takes none for one that takes every message"}
"""Where ours is another one that does the same, and why."""

INSTANCES = {
    "ServiceBusMessage": bridge.client.ServiceBusMessage("x"),
    "ServiceBusReceivedMessage": ServiceBusReceivedMessage(
        Received(
            record=Record(Properties(), b"x"), sequence_number=1, enqueued_ms=0, delivery_count=0
        )
    ),
}
"""Ours, where a class alone does not show what its instances have."""


def public(module: ModuleType) -> dict[str, Any]:
    """Return what a module has of its own."""
    names = getattr(module, "__all__", None) or [
        name
        for name, each in vars(module).items()
        if getattr(each, "__module__", "") == module.__name__ and not name.startswith("_")
    ]
    return {name: getattr(module, name) for name in names}


@pytest.mark.parametrize("theirs", MODULES)
def test_every_name_is_there(theirs: str) -> None:
    """All that an application may import."""
    names = public(importlib.import_module(theirs))
    assert len(names) >= 1
    assert not set(names) - set(vars(importlib.import_module(MODULES[theirs])))


def classes() -> Iterator[tuple[str, type, type]]:
    """All classes that both have, with their names."""
    for theirs, ours in MODULES.items():
        for name, found in public(importlib.import_module(theirs)).items():
            if inspect.isclass(found):
                yield f"{ours}.{name}", found, vars(importlib.import_module(ours))[name]


CLASSES = {name: (theirs, ours) for name, theirs, ours in classes()}


@pytest.mark.parametrize("name", CLASSES)
def test_every_member_is_there(name: str) -> None:
    """Methods, properties and attributes."""
    theirs, ours = CLASSES[name]
    other = INSTANCES.get(name.rpartition(".")[2], ours)
    wanted = {each for each in dir(theirs) if not each.startswith("_") or each in SPECIAL}
    assert not wanted - set(dir(other)) - attributes(ours) - set(OTHERS)


def attributes(made: type) -> set[str]:
    """Return the names that are in the constructors of a class: parameters and attributes."""
    found: set[str] = set()
    for each in made.__mro__[:-1]:
        code = getattr(vars(each).get("__init__"), "__code__", None)
        found |= {*code.co_names, *code.co_varnames} if code is not None else set()
    return found


def methods() -> Iterator[tuple[str, Any, Any]]:
    """What both have, and an application calls."""
    for name, (theirs, ours) in CLASSES.items():
        for each in dir(theirs):
            found, other = getattr(theirs, each), getattr(ours, each, None)
            is_made = each == "__init__" and name.rpartition(".")[2] not in MADE_BY_US
            is_called = is_made or (not each.startswith("_") and each not in OTHERS)
            if is_called and inspect.isroutine(found) and hasattr(found, "__code__"):
                yield f"{name}.{each}", found, other


METHODS = {name: (theirs, ours) for name, theirs, ours in methods()}


@pytest.mark.parametrize("name", METHODS)
def test_every_parameter_is_taken(name: str) -> None:
    """By the same name, in the same place, and with the same default."""
    theirs, ours = (inspect.signature(each).parameters for each in METHODS[name])
    options = keywords(METHODS[name][1])
    for wanted in theirs.values():
        found = ours.get(wanted.name)
        if wanted.kind in (wanted.VAR_KEYWORD, wanted.VAR_POSITIONAL):
            continue
        assert found is not None or wanted.name in options, wanted
        if found is not None and wanted.default is not wanted.empty:
            same = name.rpartition(".")[2], wanted.name
            assert found.default == wanted.default or same in DEFAULTS, wanted
    places = [_places(each) for each in (theirs, ours)]
    assert places[1][: len(places[0])] == places[0]


def keywords(method: Callable[..., Any]) -> set[str]:
    """Return the names behind `**options`."""
    parameters = inspect.signature(method).parameters.values()
    taken = [each.annotation for each in parameters if each.kind is each.VAR_KEYWORD]
    if not taken or not isinstance(taken[0], str):  # an enumeration's own
        return set()
    found = inspect.unwrap(method)
    module = vars(importlib.import_module(found.__module__))
    options = get_args(eval(taken[0], module))  # none of `**values: Any`
    return {name for each in options for name in each.__annotations__}


def _places(parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY
    return [each.name for each in parameters.values() if each.kind in kinds]
