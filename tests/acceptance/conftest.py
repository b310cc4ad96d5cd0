"""The bridge of a module has the queues that the module names, and no others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def config(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `Config.json` in the emulator's schema, of the module's `ENTITIES`: name -> properties."""
    entities = request.module.ENTITIES
    queues = [{"Name": name, "Properties": properties} for name, properties in entities.items()]
    namespace = {"Name": "sbemulatorns", "Queues": queues, "Topics": []}
    document = {"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "Console"}}}
    path = tmp_path_factory.mktemp("config") / "Config.json"
    path.write_text(json.dumps(document, indent=2))
    return path
