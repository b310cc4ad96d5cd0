"""The bridge of a module has the queues and topics that the module names, and no others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.acceptance.driver import Outcome
from tests.fixtures.bridge import Bridge


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of a `scenario` is one of each in its module's `SCENARIOS`."""
    if "scenario" in metafunc.fixturenames:
        metafunc.parametrize("scenario", metafunc.module.SCENARIOS)


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, bridge: Bridge) -> Mapping[str, Outcome]:
    """What each scenario of the module's program did; see `scenarios`."""
    found: Mapping[str, Outcome] = request.module.run(bridge)
    return found


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
