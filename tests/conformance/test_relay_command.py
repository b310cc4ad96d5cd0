"""`busbridge relay FILE` as a process: health, metrics, lines, and its end by a signal."""

from __future__ import annotations

import asyncio
import json
import urllib.error
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bridge.broker.node.ports import Ports
from bridge.testing.http_answers import http_answer
from tests.conformance.door import KEY, RULE_NAME
from tests.conformance.remote import texts
from tests.conformance.served import gateway, queue_of
from tests.conformance.test_relay import bodies, count_in, fill
from tests.fixtures.relay_process import RelayProcess
from tests.fixtures.waiting import until

FILE = """
[sides.azure]
env = "AZURE"
id = "azure"

[sides.local]
env = "LOCAL"
id = "local"

[[routes]]
name = "orders"
from = "azure/q"
to = "local/q"
outage_s = 1
"""


def connection_string(port: int) -> str:
    """Return what a side connects with."""
    return (
        f"Endpoint=sb://localhost:{port};SharedAccessKeyName={RULE_NAME};"
        f"SharedAccessKey={KEY};UseDevelopmentEmulator=true"
    )


class Served:
    """A relay process with a port for health and metrics."""

    def __init__(self, folder: Path, from_port: int, to_port: int) -> None:
        self._ports = Ports(1)
        (self._port,) = self._ports.numbers
        file = folder / "relay.toml"
        file.write_text(FILE)
        environment = {"AZURE": connection_string(from_port), "LOCAL": connection_string(to_port)}
        self.process = RelayProcess(file, environment, "--admin-port", str(self._port))

    async def get(self, path: str) -> tuple[int, str]:
        """Return the status and the body of an answer; 0 if nobody listens."""
        return await asyncio.to_thread(self._get, path)

    def _get(self, path: str) -> tuple[int, str]:
        try:
            return 200, http_answer(f"http://127.0.0.1:{self._port}{path}").decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Any]:
    """Make relays that are killed at the end."""
    found: list[Served] = []

    def make(from_port: int, to_port: int) -> Served:
        found.append(Served(tmp_path, from_port, to_port))
        return found[-1]

    yield make
    for each in found:
        each.process.kill()


async def test_health_and_metrics(made: Any) -> None:
    """Ready while all routes are sound; otherwise a sentence for each route, with its cause."""
    async with gateway() as (source, from_port), gateway() as (target, to_port):
        await fill(from_port, texts(20))
        relay = made(from_port, to_port)
        relay.process.start()

        async def is_ready() -> bool:
            return (await relay.get("/health/ready"))[0] == 200

        await until(is_ready)
        await until(lambda: count_in(target) == 20 and not queue_of(source).locked)
        _, metrics = await relay.get("/metrics")
        assert 'busbridge_relay_relayed_total{route="orders"} 20.0' in metrics
        assert 'busbridge_relay_unconfirmed{route="orders"} 0.0' in metrics
        assert 'busbridge_relay_state{route="orders",state="running"} 1.0' in metrics
        assert 'busbridge_relay_lag_seconds{route="orders"}' in metrics
        await target.stop()
        await fill(from_port, texts(1))

        async def is_not_ready() -> bool:
            return (await relay.get("/health/ready"))[0] == 503

        await until(is_not_ready)
        (reason,) = json.loads((await relay.get("/health/ready"))[1])["reasons"]
        assert "'orders'" in reason
        assert (await relay.get("/health/live"))[0] == 200


async def test_a_signal_stops_it_cleanly(made: Any) -> None:
    """Sends under way are finished, other messages released; the last lines have the counts."""
    async with gateway() as (source, from_port), gateway() as (target, to_port):
        await fill(from_port, texts(50))
        relay = made(from_port, to_port)
        relay.process.start()
        await until(lambda: count_in(target) == 50)
        assert await asyncio.to_thread(relay.process.stop) == 0
        assert not queue_of(source).locked
        assert not count_in(source)
        assert len(await bodies(to_port)) == 50
        last = relay.process.rows[-1]
        assert (last["route"], last["state"], last["relayed"]) == ("orders", "stopped", 50)


async def test_no_line_shows_a_key(made: Any) -> None:
    """Not in an error either."""
    async with gateway() as (_, from_port), gateway() as (target, to_port):
        await target.stop()
        relay = made(from_port, to_port)
        relay.process.start()
        await until(lambda: any(each["state"] == "paused" for each in relay.process.rows))
        await asyncio.to_thread(relay.process.stop)
        shown = relay.process.log.read_text() + json.dumps(relay.process.rows)
        assert KEY not in shown
        assert any(each["last_error"] for each in relay.process.rows)


async def test_an_error_has_its_time(made: Any) -> None:
    """The time of a route's last error is shown; a route without an error has none."""
    async with gateway() as (_, from_port), gateway() as (target, to_port):
        relay = made(from_port, to_port)
        relay.process.start()
        await until(lambda: any(each["state"] == "running" for each in relay.process.rows))
        running = next(each for each in relay.process.rows if each["state"] == "running")
        assert running["last_error"] is running["last_error_at"] is None
        await target.stop()
        await fill(from_port, texts(1))
        await until(lambda: any(each["last_error"] for each in relay.process.rows))
        row = next(each for each in relay.process.rows if each["last_error"])
        assert running["since"] < row["last_error_at"] <= datetime.now(UTC).isoformat()
