"""What the doctor makes of what it is told, and what it never writes down."""

from __future__ import annotations

import socket
from datetime import UTC, datetime
from email.utils import formatdate
from pathlib import Path

import pytest
from aiohttp import web

from bridge.cli.options import OPTIONS
from bridge.commands.bundle import OPEN_VARIABLES, environment, write_bundle
from bridge.commands.doctor_checks import clock, health, ports
from bridge.commands.doctor_rabbitmq import (
    FILE_VARIABLES,
    MANAGEMENT_VARIABLE,
    URL_VARIABLE,
    node_findings,
)
from bridge.commands.target import PORT_VARIABLE, VARIABLE, NamespaceLogin
from bridge.remote.address import RemoteAddress
from bridge.remote.credentials import SharedKey

GIB = 2**30
WELL = {
    "name": "rabbit@a",
    "running": True,
    "enabled_plugins": ["rabbitmq_management", "rabbitmq_stream"],
    "mem_used": GIB,
    "mem_limit": 4 * GIB,
    "mem_alarm": False,
    "disk_free": 50 * GIB,
    "disk_free_limit": GIB,
    "disk_free_alarm": False,
}


@pytest.mark.parametrize(
    ("changes", "results", "text"),
    [
        ({}, ["ok", "ok", "ok"], "1 GiB of 4 GiB"),
        ({"mem_used": int(3.5 * GIB)}, ["ok", "warning", "ok"], "3 GiB of 4 GiB"),
        ({"mem_alarm": True}, ["ok", "failed", "ok"], "an alarm stops all sends"),
        ({"disk_free": GIB + 1}, ["ok", "ok", "warning"], "1 GiB free; the alarm is at 1 GiB"),
        ({"disk_free_alarm": True}, ["ok", "ok", "failed"], "an alarm stops all sends"),
        ({"disk_free": "disk_free_monitoring_disabled"}, ["ok", "ok", "unknown"], "not measured"),
        ({"enabled_plugins": []}, ["failed", "ok", "ok"], "missing: rabbitmq_management"),
        ({"running": False}, ["failed"], "it does not run"),
    ],
)
def test_a_node_is_judged_by_its_alarms_and_plugins(
    changes: dict[str, object], results: list[str], text: str
) -> None:
    """A warning comes before the alarm."""
    found = node_findings(WELL | changes)
    assert [each.result for each in found] == results
    assert any(text in each.text for each in found)


def test_a_bundle_has_no_value_that_could_be_a_key() -> None:
    """Most variables are only said to be set; values that are shown do not look like keys."""
    given = {
        "BUSBRIDGE_PORT": "5672",
        "BUSBRIDGE_NAMESPACE": "Endpoint=sb://a;SharedAccessKey=s3cret",
        "BUSBRIDGE_RABBITMQ_URL": "amqp://user:s3cret@host",
        "PROD_CONNECTION_STRING": "s3cret",
    }
    assert environment(given) == {
        "BUSBRIDGE_PORT": "5672",
        "BUSBRIDGE_NAMESPACE": "(set)",
        "BUSBRIDGE_RABBITMQ_URL": "(set)",
    }


def test_the_variables_of_serve_are_read_by_its_names() -> None:
    """Commands cannot import the table of serve's options."""
    read = {URL_VARIABLE, MANAGEMENT_VARIABLE, *FILE_VARIABLES.values(), PORT_VARIABLE}
    known = {option.variable for option in OPTIONS}
    assert read <= known
    assert known | {VARIABLE} >= OPEN_VARIABLES


def nobody(taken: socket.socket) -> NamespaceLogin:
    """Return a namespace at a port that is taken, and not listened on."""
    taken.bind(("127.0.0.1", 0))
    text = f"Endpoint=sb://127.0.0.1:{taken.getsockname()[1]};UseDevelopmentEmulator=true"
    return NamespaceLogin("it", RemoteAddress.of(text), SharedKey("root", "a2V5"))


async def test_a_port_that_nobody_serves_is_told_as_by_every_command() -> None:
    """In the system's words, which asyncio and aiohttp put into their own."""
    with socket.socket() as taken:
        target = nobody(taken)
        place = target.address.namespace
        found = [each async for each in ports(target)]
        found.append(await clock(target, lambda: datetime.now(UTC)))
        found += [each async for each in health(f"http://{place}")]
    assert [each.text for each in found] == [
        "Connection refused",
        f"http://{place} does not answer: Connection refused",
        f"http://{place} does not answer: Connection refused",
    ]


async def test_administration_that_has_moved_is_a_warning_and_tells_the_time_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bridge administers at its port of AMQP, too; nothing else is said to have failed."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=401, headers={"Date": formatdate(usegmt=True)})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    monkeypatch.setattr("bridge.remote.address.AMQP_PORT", port)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        free = taken.getsockname()[1]
        monkeypatch.setattr("bridge.remote.address.EMULATOR_ADMINISTRATION_PORT", free)
        address = RemoteAddress.of("Endpoint=sb://127.0.0.1;UseDevelopmentEmulator=true")
        target = NamespaceLogin("moved", address, SharedKey("root", "key"))
        found = [each async for each in ports(target)][1:]
        found.append(await clock(target, lambda: datetime.now(UTC)))
    await runner.cleanup()
    assert [each.result for each in found] == ["warning", "ok"]
    assert found[0].text == f"Connection refused; a bridge administers at port {port}, too"


async def test_a_bundle_is_its_owners_alone_even_where_a_file_was(tmp_path: Path) -> None:
    """Whatever mode the file before it had."""
    path = tmp_path / "bundle.zip"
    path.write_text("an older one")
    path.chmod(0o644)
    with socket.socket() as taken:
        await write_bundle(path, nobody(taken), [])
    assert path.stat().st_mode & 0o077 == 0
