"""Which RabbitMQ of this machine is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.broker.node import installation
from bridge.broker.node.installation import Installation


@pytest.fixture
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that `make run` unpacks into, on a machine without a RabbitMQ of its own."""
    tree = tmp_path / ".busbridge" / "brokers" / "sid"
    tree.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    monkeypatch.setattr(installation, "DEBIAN", tmp_path / "nowhere")
    return tree


def server(tree: Path, version: str) -> None:
    """Put the folders of a RabbitMQ of this version below a tree."""
    below = tree / "root" / "usr" / "lib" / "rabbitmq" / "lib" / f"rabbitmq_server-{version}"
    (below / "sbin").mkdir(parents=True)
    (below / "plugins" / f"rabbit-{version}").mkdir(parents=True)


def test_one_that_was_unpacked_is_found(unpacked: Path) -> None:
    """With the version that its folders say."""
    server(unpacked, "4.3.6")
    (unpacked / "complete").touch()
    found = Installation.find()
    assert found is not None
    assert found.version_text == "4.3.6"


@pytest.mark.parametrize("has_server", [False, True])
def test_one_whose_unpacking_was_interrupted_is_none(unpacked: Path, has_server: bool) -> None:
    """It counts as missing, and is no error."""
    if has_server:
        server(unpacked, "4.3.6")
    assert Installation.all() == []
    assert Installation.find() is None


def test_one_that_is_too_old_is_named_and_not_taken(unpacked: Path) -> None:
    """The sentence about what is missing tells which versions are there."""
    server(unpacked, "3.13.7")
    (unpacked / "complete").touch()
    assert Installation.find() is None
    assert [each.version_text for each in Installation.all()] == ["3.13.7"]
