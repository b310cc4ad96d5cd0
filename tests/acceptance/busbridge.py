"""The command `busbridge` as somebody types it, with a connection string in a variable."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bridge.cli.main import main
from tests.fixtures.administration import KEY
from tests.fixtures.prepared import Process

WITHIN_S = 120.0


@dataclass
class Said:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of JSON."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def row(self) -> dict[str, Any]:
        """The only row."""
        (found,) = self.rows
        return found


class Busbridge:
    """The command, in this process or one of its own; `folder` is that of the user's profiles."""

    def __init__(
        self,
        connection_string: str,
        folder: Path,
        patch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        self.options: tuple[str, ...] = ()
        self._folder = folder
        self._patch = patch
        self._capsys = capsys
        patch.setenv("PLACE", connection_string)
        patch.setenv("XDG_CONFIG_HOME", str(folder))
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", "150")
        patch.delenv("BUSBRIDGE_NAMESPACE", raising=False)

    def words(self, *words: str) -> list[str]:
        """Return the words of a command line."""
        return [*words, "--connection-string-variable", "PLACE", *self.options]

    def line(self, *words: str) -> list[str]:
        """Return a command line for a process of its own."""
        return [sys.executable, "-m", "bridge.cli.command", *self.words(*words)]

    def __call__(self, *words: str, given: str | None = None) -> Said:
        """Run a command without a terminal; `given` is a file as its standard input."""
        self._capsys.readouterr()
        file = self._folder / "standard-input"
        file.write_text(given or "")
        with (file if given is not None else Path("/dev/null")).open() as stdin:
            self._patch.setattr("sys.stdin", stdin)
            code = main(self.words(*words))
        out, err = self._capsys.readouterr()
        assert KEY[1] not in out + err
        return Said(code, out, err)

    def done(self, *words: str, given: str | None = None) -> Said:
        """Run a command that succeeds."""
        said = self(*words, given=given)
        assert said.code == 0, said
        return said

    def start(self, *words: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """Start a command in a process of its own; its output goes into pipes, unbuffered."""
        pipe = subprocess.PIPE
        return Process(self.line(*words), stdin=stdin, stdout=pipe, stderr=pipe, bufsize=0)

    def end(self, process: subprocess.Popen[bytes], given: bytes | None = None) -> Said:
        """Wait for the end of a process; `given` is written to its standard input."""
        try:
            out, err = process.communicate(given, timeout=WITHIN_S)
        finally:
            process.kill()
        said = Said(process.returncode, out.decode(), err.decode())
        assert "Traceback" not in said.err, said.err
        assert KEY[1] not in said.out + said.err
        return said


Make = Callable[[str], Busbridge]
"""Make the command for a connection string."""
