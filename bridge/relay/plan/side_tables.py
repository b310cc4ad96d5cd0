"""The tables `[sides.NAME]` of a relay's file."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any, Protocol
from urllib.parse import urlsplit

from bridge.model import connection_string
from bridge.relay.plan import keys
from bridge.relay.plan.faults import Faults
from bridge.relay.plan.positions import Path
from bridge.relay.plan.route import WILDCARD
from bridge.relay.plan.side import Side
from bridge.remote.address import RemoteAddress

_IN_IDS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-[]")
_ID_CHARACTERS_MAX = 100


def is_same_elsewhere(authority: str) -> bool:
    """Whether a host's name, with its port if it has one, is another host's on another machine.

    These are loopback addresses, `localhost`, and names without a dot, which each network has its
    own of. As the id of a namespace such a name would be the id of two.
    """
    try:
        host = (urlsplit(f"//{authority}").hostname or "").rstrip(".")
    except ValueError:
        return False  # which is another fault
    try:
        address = ip_address(host)
    except ValueError:
        return "." not in host or host.endswith((".localhost", ".localdomain"))
    return address.is_loopback or address.is_unspecified or address.is_link_local


class Secrets(Protocol):
    """Where connection strings are read from."""

    def variable(self, name: str) -> str:
        """Return the text of an environment variable; ValueError with a sentence if none is."""

    def file(self, path: str) -> str:
        """Return the text of a file; ValueError with a sentence if it cannot be read."""

    def path(self, path: str) -> str:
        """Return the whole path of a file; ValueError with a sentence if there is none."""


class SideTables:
    """Reads the sides, and notes what is wrong with them.

    Args:
        secrets: gives the connection strings.
        allows_inline: whether connection strings may stand in the file.
    """

    def __init__(self, faults: Faults, secrets: Secrets, *, allows_inline: bool) -> None:
        self._faults = faults
        self._secrets = secrets
        self._allows_inline = allows_inline

    def read(self, values: Any) -> dict[str, Side]:
        """Return the sides by their names; one with a fault has no address.

        So the faults of its routes are found, too.
        """
        if not isinstance(values, dict) or not values:
            self._faults.add(
                ("sides",), "There are no sides: a table [sides.NAME] for each namespace."
            )
            return {}
        found = {}
        for name, table in values.items():
            path: Path = ("sides", name)
            if not name or "/" in name or WILDCARD in name:
                self._faults.add(path, "A side's name has no '/' and no '*'.", at_key=True)
            side = self._side(name, path, self._faults.table(table, path, keys.SIDE))
            found[name] = side or Side(name=name, id=name, host="")
        return found

    def _side(self, name: str, path: Path, given: dict[str, Any]) -> Side | None:
        sources = [each for each in keys.SOURCES if each in given]
        if len(sources) != 1:
            names = ", ".join(keys.SOURCES[:-1]) + f" or {keys.SOURCES[-1]}"
            has = " and ".join(sources) or "none"
            fault = f"The side {name!r} takes one of {names}, and has {has}."
            self._faults.add(path, fault, at_key=True)
            return None
        source = sources[0]
        text = self._login((*path, source), source, given[source])
        if text is None:
            return None
        host = text if source == "host" else self._host((*path, source), text)
        endpoint = given.get("custom-endpoint-address")
        if host is None or not (
            self._is_address((*path, source), text)
            and self._is_address((*path, "custom-endpoint-address"), text, endpoint)
        ):
            return None
        id_ = given.get("id", host)
        if "id" not in given and is_same_elsewhere(host):
            text = (
                f"{host} names another namespace on another machine, and messages of both would be "
                'taken for one another\'s: say what this one is called, id = "NAME".'
            )
            self._faults.add((*path, source), text)
        if len(id_) > _ID_CHARACTERS_MAX or not _IN_IDS.issuperset(id_):
            self._faults.add(
                (*path, "id" if "id" in given else source),
                f"id: {id_!r} is none: up to {_ID_CHARACTERS_MAX} letters, digits, '.', '-', '_' "
                "and ':'.",
            )
        return Side(
            name=name,
            id=id_,
            host=host,
            connection_string="" if source == "host" else text,
            entra=source == "host",
            ca_file=self._ca_file((*path, "ca-file"), given.get("ca-file", "")),
            custom_endpoint_address=endpoint or "",
            websocket=given.get("websocket", False),
        )

    def _ca_file(self, path: Path, given: str) -> str:
        try:
            return self._secrets.path(given) if given else ""
        except ValueError as error:
            self._faults.add(path, f"ca-file: {error}")
            return ""

    def _login(self, path: Path, source: str, given: str) -> str | None:
        """Return a connection string, or the host of a login without one."""
        if source == "host":
            if connection_string.is_connection_string(given) or "/" in given:
                self._faults.add(path, "host: it takes a host's name: NAME.servicebus.windows.net.")
                return None
            return given
        if source == "connection-string":
            if self._allows_inline:
                return given
            text = (
                "A key does not belong into this file: name a variable (env) or a file (file), or "
                "give --allow-inline-secrets."
            )
            self._faults.add(path, text)
            return None
        try:
            read = self._secrets.variable if source == "env" else self._secrets.file
            return read(given)
        except ValueError as error:
            self._faults.add(path, f"{source}: {error}")
            return None

    def _is_address(self, path: Path, text: str, endpoint: str | None = None) -> bool:
        try:
            RemoteAddress.of(text, custom_endpoint_address=endpoint)
        except ValueError as error:
            self._faults.add(path, f"{path[-1]}: {error}")
            return False
        return True

    def _host(self, path: Path, text: str) -> str | None:
        """Return the host that a connection string names; no fault shows a key."""
        try:
            if not connection_string.is_connection_string(text):
                raise ValueError("It is no connection string: Endpoint=sb://...;...")
            found = connection_string.read(text)
        except ValueError as error:
            self._faults.add(path, str(error))
            return None
        if not found.key and not found.signature:
            self._faults.add(path, "It has neither SharedAccessKey nor SharedAccessSignature.")
            return None
        return found.authority
