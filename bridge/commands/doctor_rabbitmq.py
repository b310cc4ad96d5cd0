"""Checks of a bridge's RabbitMQ: version, plugins, alarms, and what the login may do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from bridge.commands.doctor_checks import Finding
from bridge.commands.errors import WrongInput

if TYPE_CHECKING:
    from bridge.broker.connection.endpoint import Endpoint

URL_VARIABLE: Final = "BUSBRIDGE_RABBITMQ_URL"
MANAGEMENT_VARIABLE: Final = "BUSBRIDGE_MANAGEMENT_URL"
"""The variables of `busbridge serve`."""

FILE_VARIABLES: Final = {
    "ca": "BUSBRIDGE_RABBITMQ_CA",
    "cert": "BUSBRIDGE_RABBITMQ_CERT",
    "key": "BUSBRIDGE_RABBITMQ_KEY",
}

PLUGINS: Final = ("rabbitmq_management",)
"""What the bridge needs."""

DISK_TIMES: Final = 2
MEMORY_PART: Final = 0.8
"""A warning before the alarm: free disk below twice its limit, memory above this part of it."""


async def rabbitmq(environment: Mapping[str, str]) -> AsyncIterator[Finding]:
    """Yield findings about the RabbitMQ that the variables of `serve` name.

    Raises:
        WrongInput: a variable cannot be used.
    """
    from bridge.broker.errors import BrokerError
    from bridge.broker.management.api import Management

    url = environment.get(URL_VARIABLE)
    if not url:
        yield Finding("RabbitMQ", "unknown", f"not looked at: {URL_VARIABLE} is not set")
        return
    endpoint = endpoint_in(url, environment, URL_VARIABLE)
    urls = [each for each in environment.get(MANAGEMENT_VARIABLE, "").split(",") if each]
    yield await _login(endpoint)
    async with Management(endpoint, urls) as management:
        try:
            overview = await management.overview()
        except BrokerError as error:
            yield Finding("RabbitMQ management", "failed", str(error))
            return
        yield _version(str(overview.get("rabbitmq_version", "?")))
        try:
            nodes = await management.nodes()
        except BrokerError as error:
            yield Finding(
                "RabbitMQ alarms",
                "unknown",
                f"{error}: the login lacks the tag monitoring, so alarms are noticed late",
            )
            return
        for node in nodes:
            for finding in node_findings(node):
                yield finding


def endpoint_in(url: str, environment: Mapping[str, str], said_by: str) -> Endpoint:
    """Return the RabbitMQ of a URL, with the certificates that the variables of `serve` name.

    Args:
        said_by: the variable or the option that has the URL.

    Raises:
        WrongInput: the URL or a file cannot be used; the text shows no password.
    """
    from bridge.broker.connection.endpoint import parse_url

    files = {name: environment.get(variable) for name, variable in FILE_VARIABLES.items()}
    try:
        return parse_url(url, **files)
    except ValueError as error:
        raise WrongInput(f"{said_by}: {error}") from None


async def _login(endpoint: Any) -> Finding:
    """Return whether the login may use the virtual host."""
    from bridge.broker.connection.connection import Connection
    from bridge.broker.errors import BrokerError

    check = "RabbitMQ login"
    try:
        connection = await Connection.open(endpoint, name="busbridge doctor")
    except BrokerError as error:
        return Finding(check, "failed", str(error))
    await connection.close()
    return Finding(check, "ok", f"taken by {endpoint}")


def _version(version: str) -> Finding:
    from bridge.topology.capabilities import NEWEST_KNOWN, Capabilities, UnsupportedVersion

    check = "RabbitMQ version"
    try:
        found = Capabilities.served(version)
    except UnsupportedVersion as error:
        return Finding(check, "failed", str(error))
    newest = ".".join(map(str, NEWEST_KNOWN))
    if found.version < NEWEST_KNOWN:
        return Finding(check, "ok", f"{version}; {newest} is faster")
    return Finding(check, "ok", version)


def node_findings(node: Mapping[str, Any]) -> list[Finding]:
    """Return the findings about a node, as the management API describes it."""
    name = str(node.get("name", "node"))
    if node.get("running") is False:
        return [Finding(f"node {name}", "failed", "it does not run")]
    found = []
    plugins = node.get("enabled_plugins")
    if isinstance(plugins, list):
        missing = [each for each in PLUGINS if each not in plugins]
        text = f"missing: {', '.join(missing)}" if missing else ", ".join(sorted(plugins))
        found.append(Finding(f"plugins of {name}", "failed" if missing else "ok", text))
    found.append(_memory(name, node))
    found.append(_disk(name, node))
    return found


def _memory(name: str, node: Mapping[str, Any]) -> Finding:
    check = f"memory of {name}"
    used, limit = int(node.get("mem_used") or 0), int(node.get("mem_limit") or 0)
    text = f"{_size(used)} of {_size(limit)}"
    if node.get("mem_alarm"):
        return Finding(check, "failed", f"an alarm stops all sends: {text}")
    is_near = bool(limit) and used > MEMORY_PART * limit
    return Finding(check, "warning" if is_near else "ok", text)


def _disk(name: str, node: Mapping[str, Any]) -> Finding:
    check = f"disk of {name}"
    free, limit = node.get("disk_free"), int(node.get("disk_free_limit") or 0)
    if not isinstance(free, int):
        return Finding(check, "unknown", "not measured")
    text = f"{_size(free)} free; the alarm is at {_size(limit)}"
    if node.get("disk_free_alarm"):
        return Finding(check, "failed", f"an alarm stops all sends: {text}")
    return Finding(check, "warning" if free < DISK_TIMES * limit else "ok", text)


def _size(count_bytes: int) -> str:
    """Return a number of bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if count_bytes < 1024:
            return f"{count_bytes:,} {unit}"
        count_bytes //= 1024
    return f"{count_bytes:,} GiB"
