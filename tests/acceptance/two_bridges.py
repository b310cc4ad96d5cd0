"""Two bridges, a migration's source and target, and the commands between them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from bridge.cli.main import main
from bridge.testing.process import Bridge
from tests.acceptance.busbridge import Said
from tests.fixtures.administration import KEY
from tests.fixtures.bridge import bridge_of
from tests.fixtures.broker import Broker


def config(folder: Path, name: str, queues: dict[str, dict[str, Any]], *topics: object) -> Path:
    """Write the entities of a bridge."""
    rows = [{"Name": queue, "Properties": properties} for queue, properties in queues.items()]
    namespace = {"Name": name, "Queues": rows, "Topics": list(topics)}
    path = folder / f"{name}.json"
    path.write_text(
        json.dumps({"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "Console"}}})
    )
    return path


@contextmanager
def two_bridges(broker: Broker, source: Path, target: Path) -> Iterator[tuple[Bridge, Bridge]]:
    """Start two bridges, each on a virtual host of its own with the entities of a file."""
    with ExitStack() as ends:
        vhosts = [ends.enter_context(broker.fresh_vhost()) for _ in range(2)]
        both = (
            bridge_of(broker, vhosts[0], config=source),
            bridge_of(broker, vhosts[1], config=target),
        )
        for each in both:
            ends.callback(each.stop)
            each.start()
        yield both


def add_profiles(
    bridges: tuple[Bridge, Bridge], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Add the profiles `here` and `there` of two bridges, in a user's folder of their own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    monkeypatch.delenv("BUSBRIDGE_NAMESPACE", raising=False)
    for name, each in zip(("here", "there"), bridges, strict=True):
        monkeypatch.setenv(name.upper(), each.connection_string)
        assert main(["profile", "add", name, "--variable", name.upper()]) == 0


class MigrateCommands:
    """The commands of a migration from `here` to `there`."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def said(self, verb: str, *words: str) -> Said:
        """Run one; no key is in what it says."""
        self._capsys.readouterr()
        code = main(["migrate", verb, "--from", "here", "--to", "there", *words])
        out, err = self._capsys.readouterr()
        assert KEY[1] not in out + err
        return Said(code, out, err)
