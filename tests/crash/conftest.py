"""Stages for commands that are run and hurt."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.acceptance.busbridge import Busbridge
from tests.crash.stage import Stage, entities_in
from tests.fixtures.bridge import bridge_of
from tests.fixtures.broker import Broker
from tests.fixtures.held_wire import HeldWire

MakeStage = Callable[..., Stage]
"""`make_stage(broker, vhost, *flags, login="")`: a stage on a virtual host of a RabbitMQ."""

CLERK = {"name": "clerk", "primaryKey": "only-sends", "rights": ["Listen", "Send"]}


@pytest.fixture
def make_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[MakeStage]:
    """A bridge, started, and the command that reaches it through a wire."""
    with ExitStack() as ends:

        def made(broker: Broker, vhost: str, *flags: str, login: str = "") -> Stage:
            bridge = bridge_of(broker, vhost, *flags, config=entities_in(tmp_path))
            ends.callback(bridge.kill)
            bridge.start()
            wire = HeldWire(bridge.port)
            ends.callback(wire.close)
            place = bridge.connection_string.replace(f":{bridge.port}", f":{wire.port}")
            if login:
                place = f"Endpoint=sb://localhost:{wire.port};{login};UseDevelopmentEmulator=true;"
            busbridge = Busbridge(place, tmp_path, monkeypatch, capsys)
            return Stage(busbridge, bridge, wire, broker.node, tmp_path, bool(login))

        yield made


@pytest.fixture
def stage(make_stage: MakeStage, broker: Broker, vhost: str) -> Stage:
    """A stage on the RabbitMQ that is never killed."""
    return make_stage(broker, vhost)


@pytest.fixture
def lone_stage(make_stage: MakeStage, start_broker: Callable[[], Broker]) -> Stage:
    """A stage on a RabbitMQ that may be killed."""
    return make_stage(start_broker(), "/")


@pytest.fixture
def untold_stage(make_stage: MakeStage, broker: Broker, vhost: str, tmp_path: Path) -> Stage:
    """A stage without the right Manage: so none is told which messages copies are of."""
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps({"rules": [CLERK]}))
    login = f"SharedAccessKeyName={CLERK['name']};SharedAccessKey={CLERK['primaryKey']}"
    return make_stage(broker, vhost, "--auth", str(rules), login=login)
