"""The file of `busbridge doctor --bundle`: what helps, without keys and without messages."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridge.commands.doctor_checks import Finding
from bridge.commands.target import NamespaceLogin

if TYPE_CHECKING:
    from bridge.remote.entity import RemoteEntity

PREFIX = "BUSBRIDGE_"

PRIVATE = frozenset({"user_metadata"})
"""Properties of entities that are left out: users write into them what they like."""

SET = "(set)"

OPEN_VARIABLES = frozenset(
    {
        "BUSBRIDGE_HOST",
        "BUSBRIDGE_LOG_LEVEL",
        "BUSBRIDGE_NAMESPACE",
        "BUSBRIDGE_PORT",
        "BUSBRIDGE_TIER",
        "BUSBRIDGE_TLS_PORT",
    }
)
"""Variables whose values are written; of the others only that they are set."""


async def write_bundle(path: Path, target: NamespaceLogin, findings: Sequence[Finding]) -> None:
    """Write the file, readable for its owner alone; what cannot be read is said in it."""
    parts = {
        "findings.json": [each.row() for each in findings],
        "environment.json": environment(os.environ),
        "namespace.json": {"url": target.address.url, "websocket": target.address.transport},
        "entities.json": await _entities(target),
    }
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file, zipfile.ZipFile(file, "w") as archive:
        os.fchmod(descriptor, 0o600)  # one that was there has kept its mode
        for name, content in parts.items():
            text = json.dumps(content, ensure_ascii=False, indent=2, default=str)
            archive.writestr(name, text, zipfile.ZIP_DEFLATED)


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the bridge's variables; values only of those that can hold no key."""
    return {
        name: value if name in OPEN_VARIABLES and value.isprintable() and "=" not in value else SET
        for name, value in sorted(variables.items())
        if name.startswith(PREFIX)
    }


async def _entities(target: NamespaceLogin) -> Any:
    """Return the entities with their settings and counts; shared access rules have no keys."""
    from bridge.commands.shown_entities import record as shown
    from bridge.remote.administration import RemoteAdministration
    from bridge.remote.errors import RemoteError

    def record(entity: RemoteEntity) -> dict[str, object]:
        return {name: value for name, value in shown(entity).items() if name not in PRIVATE}

    found: list[dict[str, object]] = []
    try:
        async with RemoteAdministration(target.address, target.credential) as administration:
            async for queue in administration.queues():
                found.append(record(queue))
            async for topic in administration.topics():
                found.append(record(topic))
                async for subscription in administration.subscriptions(topic.name):
                    found.append(record(subscription))
                    found += [
                        record(rule)
                        async for rule in administration.rules(topic.name, subscription.name)
                    ]
    except RemoteError as error:
        return {"entities": found, "ended_by": str(error)}
    return {"entities": found}
