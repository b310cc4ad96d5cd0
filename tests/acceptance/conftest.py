"""The bridge of a module has the queues and topics that the module names, and no others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def config(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `Config.json` in the emulator's schema.

    Of the module's `ENTITIES` (queues: name -> properties) and `TOPICS` (as the schema has them).
    """
    entities = request.module.ENTITIES
    topics = getattr(request.module, "TOPICS", [])
    queues = [{"Name": name, "Properties": properties} for name, properties in entities.items()]
    namespace = {"Name": "sbemulatorns", "Queues": queues, "Topics": topics}
    document = {"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "Console"}}}
    path = tmp_path_factory.mktemp("config") / "Config.json"
    path.write_text(json.dumps(document, indent=2))
    return path
