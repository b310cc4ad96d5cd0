"""A process that begins with the modules read is as one of a new Python to whoever started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.prepared import Process

WITHIN_S = 120.0


def started(code: str, **options: Any) -> Process:
    """A process that runs code once."""
    line = [sys.executable, "-m", "timeit", "-n", "1", "-r", "1", code]
    pipe = subprocess.PIPE
    return Process(line, stdin=pipe, stdout=pipe, stderr=pipe, text=True, **options)


def test_it_has_its_environment_folder_arguments_and_pipes(tmp_path: Path) -> None:
    """And nothing of the environment of the process that has read the modules."""
    environment = {name: text for name, text in os.environ.items() if name != "HOME"}
    environment["PLACE"] = "sb://\N{SNOWMAN}"
    code = (
        "import os, sys; print(os.getcwd(), os.environ['PLACE'], 'HOME' in os.environ, input(), "
        "len(sys.argv), sys.argv[1:3]); print('apart', file=sys.stderr)"
    )
    with started(code, cwd=tmp_path, env=environment) as process:
        out, err = process.communicate("given\n", timeout=WITHIN_S)

    said = f"{tmp_path} sb://\N{SNOWMAN} False given 6 ['-n', '1']"
    assert out.splitlines()[0] == said
    assert err == "apart\n"
    assert process.returncode == 0


def test_it_is_a_child_of_who_started_it() -> None:
    """By its own id; the bridge's modules are read."""
    code = (
        "import os, sys; print(os.getpid(), os.getppid(), 'bridge.gateway.server' in sys.modules)"
    )
    with started(code) as process:
        out, _ = process.communicate(timeout=WITHIN_S)
    expected = f"{process.pid} {os.getpid()} {sys.platform == 'linux'}"
    assert out.splitlines()[0] == expected


def test_two_have_no_chance_in_common() -> None:
    """They throw other dice."""
    said = set()
    for _ in range(2):
        with started("import random; print(random.random())") as process:
            said.add(process.communicate(timeout=WITHIN_S)[0].splitlines()[0])
    assert len(said) == 2


def test_it_ends_with_its_own_code() -> None:
    """An exception is a 1 and a traceback; a signal is told as ever."""
    with started("1 / 0") as process:
        _, err = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 1
    assert "ZeroDivisionError" in err

    with started("print('there', flush=True); input()") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        assert process.wait(WITHIN_S) == -signal.SIGKILL


@pytest.mark.parametrize("name", ["BUSBRIDGE_FAILPOINT", "PYTHONDEVMODE", "SSL_CERT_FILE"])
def test_what_is_heeded_while_modules_are_read_takes_a_new_python(name: str) -> None:
    """As a failpoint does, which is armed then."""
    code = "import sys; print('bridge.gateway.server' in sys.modules)"
    with started(code, env={**os.environ, name: "1"}) as process:
        out, _ = process.communicate(timeout=WITHIN_S)
    assert out.splitlines()[0] == "False"
