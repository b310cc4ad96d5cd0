"""The folder of a private RabbitMQ: whose data it takes over, and whose it leaves alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.broker.errors import NodeFailed
from bridge.broker.node.folder import NodeFolder


@pytest.fixture
def files(tmp_path: Path) -> Iterator[NodeFolder]:
    """A node's folder that is in use."""
    options = {"configuration": {}, "plugins": (), "cookie": None}
    folder = NodeFolder(tmp_path, "busbridge@localhost", **options)
    folder.take()
    yield folder
    folder.release()


@pytest.mark.parametrize("log", ["3.10.8", "4.0.5", None])
def test_data_of_an_older_rabbitmq_is_named_and_left_alone(
    files: NodeFolder, tmp_path: Path, log: str | None
) -> None:
    """A node does not start on the data of 3.x or of an older 4.x."""
    kept = tmp_path / "data" / "rabbit@localhost"
    kept.mkdir()
    if log is not None:
        text = f"2026-01-01 [info] <0.1.0>  Starting RabbitMQ {log} on Erlang 25.2.3 [jit]\n"
        (tmp_path / "log" / "busbridge@localhost.log").write_text(text)

    with pytest.raises(NodeFailed, match=f"is that of RabbitMQ {log or '3'}.*this one is 4.3.6"):
        files.claim("4.3.6")
    assert kept.is_dir()
    assert not (tmp_path / "version").exists()


def test_data_of_the_same_release_and_of_4_3_is_taken(files: NodeFolder, tmp_path: Path) -> None:
    """Of an older patch and of 4.3, too; the note says who wrote last."""
    files.claim("4.3.1")
    (tmp_path / "data" / "rabbit@localhost").mkdir()

    files.claim("4.3.6")

    assert (tmp_path / "version").read_text() == "4.3.6\n"
    files.claim("4.4.0")
    assert (tmp_path / "version").read_text() == "4.4.0\n"
