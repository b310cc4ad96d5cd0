"""The unmodified administration client of Java against the bridge."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.driver import HERE, Outcome, build, run_scenarios, tool
from tests.fixtures.administration import connection_string
from tests.fixtures.bridge import Bridge

SCENARIOS = ("queue", "errors", "topic", "rules", "lists", "namespace")

ENTITIES: dict[str, Any] = {"other": {}}


@pytest.fixture(scope="module")
def trusted(bridge: Bridge, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with what the bridge's certificate is signed by."""
    store = tmp_path_factory.mktemp("java") / "store.p12"
    importing = ["-importcert", "-noprompt", "-alias", "busbridge", "-file", str(bridge.ca)]
    kept = ["-keystore", str(store), "-storetype", "PKCS12", "-storepass", "changeit"]
    subprocess.run([tool("keytool", "JDK 17 is needed"), *importing, *kept], check=True)
    return store


@pytest.fixture(scope="module")
def outcomes(bridge: Bridge, trusted: Path) -> Mapping[str, Outcome]:
    """What each scenario of the Java program did."""
    folder = HERE / "java"
    build([tool("mvn", "Maven and JDK 17 are needed"), "-q", "-B", "process-classes"], folder)
    classes = f"{folder / 'target' / 'classes'}:{folder / 'target' / 'lib'}/*"
    options = [
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        f"-Djavax.net.ssl.trustStore={trusted}",
        "-Djavax.net.ssl.trustStorePassword=changeit",
    ]
    java = tool("java", "JDK 17 is needed")
    command = [java, *options, "-cp", classes, "scenarios.Administration"]
    return run_scenarios(command, connection_string(bridge.port), "java")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario: str, outcomes: Mapping[str, Outcome]) -> None:
    """The Java client does what the scenario says."""
    outcome = outcomes[scenario]
    assert outcome.is_ok, outcome.detail


def test_nothing_is_left_out(outcomes: Mapping[str, Outcome]) -> None:
    """Every scenario of the program is asked for here, and no other."""
    assert set(outcomes) == set(SCENARIOS)
