"""The settings of `busbridge serve` and `sidecar`: their options, checked."""

from __future__ import annotations

import argparse
import ipaddress
import os
import ssl
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bridge.broker.connection.endpoint import Endpoint, parse_url
from bridge.broker.management.http import default_urls
from bridge.cli.options import (
    ADMIN_PORT_DEFAULT,
    PORT_DEFAULT,
    TLS_PORT_DEFAULT,
    values_of,
)
from bridge.commands.errors import WrongInput
from bridge.model.entity import SESSION_SHARDS_MAX, Tier

_LOCALHOST = ("localhost", "127.0.0.1", "::1")
"""What `localhost` leads to; other addresses of loopback it does not reach."""

DRAIN_S_MAX = 3_600


class SettingsError(WrongInput):
    """Error for an invalid option; the text says which option, and what to write instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A port to listen on; a default port may give way to the next free port."""

    number: int
    was_asked_for: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of `serve`, checked.

    Attributes:
        endpoint: RabbitMQ, or `None` for a private RabbitMQ.
        management_urls: base URLs to try in turn; empty for a private RabbitMQ.
        tls: the given certificate and key; `None` if not given.
        tls_names: names for the bridge's own certificate, besides loopback.
        tls_ports: ports that take nothing but TLS.
        drain_s: how long a stop waits for clients to settle what they hold.
        tier: `None` if not given.
    """

    endpoint: Endpoint | None
    management_urls: tuple[str, ...]
    data_dir: Path
    host: str
    port: Port
    admin_port: Port
    tls: ssl.SSLContext | None = field(repr=False)
    tls_names: tuple[str, ...]
    tls_ports: tuple[Port, ...]
    connections_max: int
    unauthenticated_max: int
    drain_s: int
    session_shards: int
    owns_vhost: bool
    config: Path | None
    auth: Path | None
    tier: Tier | None
    log_level: str

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the bridge."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def has_own_certificate(self) -> bool:
        """Whether the bridge makes its certificate itself."""
        return self.tls is None and (self.is_loopback or bool(self.tls_names))

    @property
    def tls_folder(self) -> Path:
        """The folder of the bridge's own certificate."""
        return self.data_dir / "tls"

    @property
    def certificate_names(self) -> tuple[str, ...]:
        """Names for the bridge's own certificate, besides `localhost`, `127.0.0.1` and `::1`."""
        own = (self.host,) if self.is_loopback and self.host not in _LOCALHOST else ()
        return (*self.tls_names, *own)

    @property
    def host_for_clients(self) -> str:
        """The host for a client on this machine, in the form for a URL."""
        if self.host in (*_LOCALHOST, "0.0.0.0", "::"):
            return "localhost"
        return f"[{self.host}]" if ":" in self.host else self.host


def read_settings(
    arguments: argparse.Namespace,
    environment: Mapping[str, str] = os.environ,
    only: Collection[str] = (),
) -> Settings:
    """Return the settings of command-line options and environment.

    Args:
        only: the options that count; the others have their defaults.

    Raises:
        SettingsError: an option is invalid.
    """
    values = values_of(arguments, environment, only)
    endpoint = _endpoint(values)
    settings = Settings(
        endpoint=endpoint,
        management_urls=_management_urls(values, endpoint),
        data_dir=Path(values["data-dir"] or ".busbridge"),
        host=values["host"] or "127.0.0.1",
        port=_port(values, "port", PORT_DEFAULT),
        admin_port=_port(values, "admin-port", ADMIN_PORT_DEFAULT),
        tls=_tls(values),
        tls_names=_listed(values["tls-name"]),
        tls_ports=_tls_ports(values),
        connections_max=_count(values, "connections-max"),
        unauthenticated_max=_count(values, "unauthenticated-max"),
        drain_s=_count(values, "drain", DRAIN_S_MAX, least=0),
        session_shards=_count(values, "session-shards", SESSION_SHARDS_MAX),
        owns_vhost=_choice(values, "own-vhost", "yes", "no") == "yes",
        config=_file(values, "config"),
        auth=_file(values, "auth"),
        tier=_tier(values["tier"]),
        log_level=_choice(values, "log-level", "debug", "info", "warning", "error"),
    )
    if settings.tls_ports and settings.tls is None and not settings.has_own_certificate:
        raise SettingsError(
            f"--tls-port on {settings.host} needs a certificate: give --tls-cert, or --tls-name "
            "to have one made."
        )
    return settings


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(each.strip() for each in (text or "").split(",") if each.strip())


def _endpoint(values: Mapping[str, str | None]) -> Endpoint | None:
    url = values["rabbitmq-url"]
    if url is None:
        if values["management-url"]:
            raise SettingsError("--management-url needs --rabbitmq-url beside it.")
        return None
    try:
        return parse_url(
            url,
            ca=values["rabbitmq-ca"],
            cert=values["rabbitmq-cert"],
            key=values["rabbitmq-key"],
        )
    except ValueError as error:
        raise SettingsError(f"--rabbitmq-url: {error}.") from error


def _management_urls(
    values: Mapping[str, str | None], endpoint: Endpoint | None
) -> tuple[str, ...]:
    if endpoint is None:
        return ()
    given = values["management-url"]
    urls = default_urls(endpoint)
    if given is not None:
        urls = tuple(url.strip().rstrip("/") for url in given.split(","))
    if not all(url.startswith(("http://", "https://")) for url in urls):
        raise SettingsError("--management-url begins with http:// or https://.")
    if endpoint.is_external and not all("@" in url for url in urls):
        raise SettingsError(
            "RabbitMQ's management API takes no certificate as a login: give it one in "
            "--management-url https://user:password@host:15671."
        )
    return urls


def _port(values: Mapping[str, str | None], name: str, default: int) -> Port:
    text = values[name]
    if text is None:
        return Port(number=default, was_asked_for=False)
    return _asked_for(name, text)


def _tls_ports(values: Mapping[str, str | None]) -> tuple[Port, ...]:
    given = tuple(_asked_for("tls-port", text) for text in _listed(values["tls-port"]))
    if not given and values["tls-cert"] is not None:
        return (Port(number=TLS_PORT_DEFAULT, was_asked_for=False),)
    return given


def _asked_for(name: str, text: str) -> Port:
    if not text.isascii() or not text.isdigit() or int(text) > 65_535:
        raise SettingsError(f"--{name} takes a port number from 0 to 65535, not {text!r}.")
    return Port(number=int(text), was_asked_for=True)


def _count(
    values: Mapping[str, str | None], name: str, most: int = 1_000_000, least: int = 1
) -> int:
    text = values[name] or ""
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise SettingsError(f"--{name} takes a number from {least} to {most}, not {text!r}.")
    return int(text)


def _file(values: Mapping[str, str | None], name: str) -> Path | None:
    text = values[name]
    if text is None:
        return None
    path = Path(text)
    if path.is_dir():
        raise SettingsError(f"--{name}: {text!r} is a folder; name a file in it.")
    if not path.is_file():
        raise SettingsError(f"--{name}: there is no file {text!r}.")
    return path


def _tls(values: Mapping[str, str | None]) -> ssl.SSLContext | None:
    cert = values["tls-cert"]
    if cert is None:
        if values["tls-key"]:
            raise SettingsError("--tls-key needs --tls-cert beside it.")
        return None
    if values["tls-name"]:
        raise SettingsError("--tls-name is for a certificate that is made; --tls-cert gives one.")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert, values["tls-key"])
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"--tls-cert: {cert!r} cannot be used: {error}.") from error
    return context


def _tier(text: str | None) -> Tier | None:
    if text is None:
        return None
    for tier in Tier:
        if tier.value.lower() == text.lower():
            return tier
    raise SettingsError(f"--tier takes Basic, Standard or Premium, not {text!r}.")


def _choice(values: Mapping[str, str | None], name: str, *choices: str) -> str:
    text = values[name] or ""
    if text.lower() not in choices:
        most = ", ".join(choices[:-1])
        raise SettingsError(f"--{name} takes {most} or {choices[-1]}, not {text!r}.")
    return text.lower()
