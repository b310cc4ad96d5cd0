"""The bridge of a module has the queues and topics that the module names, and no others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.acceptance.busbridge import Busbridge, Make
from tests.acceptance.driver import Outcome
from tests.acceptance.issuer import Issuer
from tests.acceptance.logins import Logins, application
from tests.acceptance.two_bridges import add_profiles, two_bridges
from tests.acceptance.two_bridges import config as entities_file
from tests.fixtures.bridge import Bridge, bridge_of
from tests.fixtures.broker import Broker


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of a `scenario`, an `sdk` or a `library` is one of each that its module names."""
    if "scenario" in metafunc.fixturenames:
        metafunc.parametrize("scenario", metafunc.module.SCENARIOS)
    if "sdk" in metafunc.fixturenames:
        metafunc.parametrize("sdk", metafunc.module.SDKS)
    if "library" in metafunc.fixturenames:
        metafunc.parametrize("library", metafunc.module.LIBRARIES)


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


@pytest.fixture
def make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Make:
    """Make `busbridge` commands; each in place of the one before."""
    return lambda text: Busbridge(text, tmp_path, monkeypatch, capsys)


@pytest.fixture(scope="module")
def logins(
    request: pytest.FixtureRequest,
    broker: Broker,
    module_vhost: str,
    config: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Logins]:
    """An issuer with the module's `SDKS` as applications, and a bridge that lets them do all."""
    folder = tmp_path_factory.mktemp("issuer")
    issuer = Issuer(folder, [application(name) for name in request.module.SDKS])
    sdks = [make(issuer) for make in request.module.SDKS.values()]
    rules = folder / "rules.json"
    made = Logins(issuer, rules, sdks)
    made.allow("owner")
    certified = ("--tls-cert", str(folder / "server.pem"), "--tls-key", str(folder / "server.key"))
    made.bridge = bridge_of(broker, module_vhost, "--auth", str(rules), *certified, config=config)
    try:
        made.bridge.start()
        yield made
    finally:
        made.bridge.kill()
        issuer.close()


@pytest.fixture(scope="module")
def bridges(
    request: pytest.FixtureRequest, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Bridge, Bridge]]:
    """A migration's two bridges: with the module's `QUEUES` and `TOPIC`, and an empty one."""
    folder = tmp_path_factory.mktemp("migration")
    source = entities_file(folder, "source", request.module.QUEUES, request.module.TOPIC)
    target = entities_file(folder, "target", {"other": {}})
    with two_bridges(broker, source, target) as both:
        yield both


@pytest.fixture
def profiles(
    bridges: tuple[Bridge, Bridge], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The profiles `here` and `there` of commands are the module's two bridges."""
    add_profiles(bridges, tmp_path, monkeypatch)
