"""The log of a relay: who looks for a night's trouble finds it by its time."""

from __future__ import annotations

import re
import socket
from pathlib import Path

from tests.fixtures.relay_process import RelayProcess
from tests.fixtures.waiting import eventually

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (info|warning|error) +\S")

FILE = """
[sides.azure]
env = "AZURE"
id = "azure"
[sides.local]
env = "LOCAL"
id = "local"
[[routes]]
from = "azure/orders"
to = "local/new-orders"
"""


def test_each_line_of_the_log_has_its_time_and_says_whose_fault_it_is(tmp_path: Path) -> None:
    """Both sides may be called alike, so the target is named as the file names it."""
    file = tmp_path / "relay.toml"
    file.write_text(FILE)
    keys = "SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"
    with socket.socket() as nobody, socket.socket() as none:
        environment = {}
        for name, each in (("AZURE", nobody), ("LOCAL", none)):
            each.bind(("127.0.0.1", 0))  # and nobody listens
            environment[name] = f"Endpoint=sb://localhost:{each.getsockname()[1]};{keys}"
        relay = RelayProcess(file, environment)
        relay.start()
        try:
            eventually(lambda: "relay.ended" in relay.log.read_text(), "it has tried")
        finally:
            relay.stop()

    lines = relay.log.read_text().splitlines()
    ended = [each for each in lines if "relay.ended" in each]
    assert all(LINE.match(each) for each in ended), lines
    assert "error=The target local/new-orders: " in ended[0]
