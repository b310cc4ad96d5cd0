"""The examples of docs/rest.md, as they stand."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fixtures.bridge import Bridge

ENTITIES = {"orders": {}}

PAGE = Path(__file__).parents[2] / "docs" / "rest.md"


def test_the_page_s_commands(bridge: Bridge, tmp_path: Path) -> None:
    """Run in order, they send three messages, lock and unlock the first, and take all of them."""
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    found = re.findall(r"^```sh (\w+)\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert [name for name, _ in found] == [
        *("token", "send", "batch", "lock", "renew", "unlock", "take"),
    ]
    script = "\n".join(["set -eu", *(text for _, text in found)])
    script = re.sub(r"\b5672\b", str(bridge.port), script)
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=240
    )

    assert done.returncode == 0, done.stderr
    locked, taken = done.stdout.split("}", 1)
    assert locked == '{"order": 1'
    assert taken.split("\n") == ['{"order": 1} 200', "first 200", "second 200", ""]
    head = (tmp_path / "head.txt").read_text()
    assert 'Customer: "ABC"' in head
    assert "Items: 2" in head
    assert '"MessageId":"o-1"' in head
