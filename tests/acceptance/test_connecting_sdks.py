"""Java's and Go's snippets of docs/connecting.md, with what `busbridge trust` prints."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.connecting import commands_to_trust, program, run, variables_to_trust
from tests.acceptance.driver import HERE, build, tool
from tests.fixtures.bridge import Bridge

ENTITIES = {"orders": {}}


@pytest.fixture(scope="module")
def java_classes() -> str:
    """The packages of the Java SDK."""
    folder = HERE / "java"
    build(folder, tool("mvn", "Maven and JDK 17 are needed"), "-q", "-B", "process-classes")
    return f"{folder / 'target' / 'lib'}/*"


@pytest.mark.parametrize("way", ["plain", "tls", "websockets", "administration"])
def test_java(bridge: Bridge, java_classes: str, tmp_path: Path, way: str) -> None:
    """The snippet of Java, as it stands, with a store that `keytool` makes as it is told."""
    assert bridge.ca is not None
    store, own_store = str(bridge.ca.with_name("truststore.p12")), str(tmp_path / "store.p12")
    trusted = {}
    if way != "plain":
        (making, *_) = commands_to_trust(bridge, "Java")
        subprocess.run(making.replace(store, own_store), shell=True, check=True)
        trusted = {
            name: text.replace(store, own_store)
            for name, text in variables_to_trust(bridge, "Java").items()
        }
    source = tmp_path / "Connecting.java"
    source.write_text(program(bridge, "java", way))
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    java = tool("java", "JDK 17 is needed")
    printed = run([java, quiet, "-cp", java_classes, str(source)], tmp_path, **trusted)

    assert printed.startswith("hello")


@pytest.mark.parametrize("way", ["plain", "tls", "administration"])
def test_go(bridge: Bridge, tmp_path: Path, way: str) -> None:
    """The snippet of Go, as it stands."""
    for name in ("go.mod", "go.sum"):
        shutil.copy(HERE / "go" / name, tmp_path)
    (tmp_path / "main.go").write_text(program(bridge, "go", way))
    build(tmp_path, tool("go", "Go 1.23 or newer is needed"), "build", "-o", "connecting", ".")
    trusted = {} if way == "plain" else variables_to_trust(bridge, "Go")
    printed = run([str(tmp_path / "connecting")], tmp_path, **trusted)

    assert printed.startswith("hello")
