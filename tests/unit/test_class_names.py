"""The names of public classes: one word, one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]

SDK = "the SDK's name, in the library's clients for threads and for asyncio, or beside the model's"
PORT = "a port, and what implements it"
AMQP = "AMQP 1.0's name of a type; the other is an effect or event of a machine"
SETTLEMENT = "Azure's word for an outcome: asked of the engine, told to another namespace"
EFFECT = "the same effect of two machines"

ALLOWED = {
    "AuthorizationRule": SDK,
    "AutoLockRenewer": SDK,
    "EntityStatus": SDK,
    "RawProperties": SDK,
    "ServiceBusAdministrationClient": SDK,
    "ServiceBusClient": SDK,
    "ServiceBusError": SDK,
    "ServiceBusReceiver": SDK,
    "ServiceBusSender": SDK,
    "ServiceBusSession": SDK,
    "Channel": PORT,
    "Delivery": PORT,
    "HandOver": "a port, what implements it, and the messages that a relay has in hand",
    "SessionReceiver": PORT,
    "Timer": PORT,
    "Unroutable": "RabbitMQ's return, as the bridge's client and the library's raise it",
    "Accepted": AMQP,
    "Close": AMQP,
    "Open": AMQP,
    "Received": AMQP,
    "Abandon": SETTLEMENT,
    "Complete": SETTLEMENT,
    "DeadLetter": SETTLEMENT,
    "Defer": SETTLEMENT,
    "Release": SETTLEMENT,
    "Deliver": EFFECT,
    "End": EFFECT,
    "Finding": "the result of a check: of a broker, of a relay's file, of an entity's properties",
    "Queue": "Azure's queue in the model, RabbitMQ's in the topology",
}
"""The names of several public classes, and why each has to be the same."""


def _classes(tree: ast.AST) -> list[str]:
    """Return the names of the classes outside functions."""
    found = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            found.append(node.name)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found += _classes(node)
    return found


def test_a_name_of_a_public_class_names_one_class() -> None:
    """Two public classes in `bridge` have different names, but for those that are listed here."""
    files: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "bridge").rglob("*.py")):
        for name in _classes(ast.parse(path.read_text(encoding="utf-8"))):
            if not name.startswith("_"):
                files[name].append(str(path.relative_to(ROOT)))
    assert {name: where for name, where in files.items() if len(where) > 1}.keys() == ALLOWED.keys()
