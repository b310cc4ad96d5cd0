"""The folder for the data of the tests' RabbitMQ: gone with its process, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.brokers import in_memory
from tests.brokers.in_memory import folder_in_memory

ROOT = Path(__file__).parents[2]

KILLED = """
import os, signal, sys
from pathlib import Path
from tests.brokers import in_memory

in_memory.FREE_BYTES_MIN = 0
with in_memory.folder_in_memory(Path("nowhere"), Path(sys.argv[1])) as folder:
    (folder / "data").write_text("data")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any room is enough."""
    monkeypatch.setattr(in_memory, "FREE_BYTES_MIN", 0)


def test_a_folder_is_gone_at_the_end(tmp_path: Path) -> None:
    """With all that is in it."""
    with folder_in_memory(Path("nowhere"), tmp_path) as folder:
        (folder / "data").write_text("data")
        assert list(tmp_path.iterdir()) == [folder]
    assert list(tmp_path.iterdir()) == []


def test_those_in_use_stay(tmp_path: Path) -> None:
    """Another process that begins leaves them alone."""
    with folder_in_memory(Path("nowhere"), tmp_path) as first:
        (first / "data").write_text("data")
        with folder_in_memory(Path("nowhere"), tmp_path) as second:
            assert first != second
            assert (first / "data").read_text() == "data"


def test_that_of_a_killed_process_is_removed_by_the_next(tmp_path: Path) -> None:
    """So memory does not fill up."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-c", KILLED, str(tmp_path)]
    killed = subprocess.run(line, env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    with folder_in_memory(Path("nowhere"), tmp_path) as folder:
        assert not left.exists()
        assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("memory", ["", "missing"])
def test_where_no_memory_is_free_it_is_the_other(
    tmp_path: Path, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which stays."""
    monkeypatch.setattr(in_memory, "FREE_BYTES_MIN", 1 << 62)
    other = tmp_path / "other"
    other.mkdir()
    with folder_in_memory(other, tmp_path / memory) as folder:
        assert folder == other
    assert other.is_dir()
