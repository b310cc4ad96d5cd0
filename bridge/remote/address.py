"""Where a namespace is, and by which transport it is reached."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from bridge.model import connection_string
from bridge.remote.errors import OTHER_ENTITY, RemoteOtherEntity

AMQP_PORT = 5672
"""Plain TCP: Microsoft's emulator, and a bridge."""

AMQPS_PORT = 5671
HTTPS_PORT = 443
HTTP_PORT = 80

EMULATOR_ADMINISTRATION_PORT = 5300
"""Where Microsoft's emulator administers; a bridge, too, which does it at its port of AMQP as well.
"""

WEBSOCKET_PATH = "/$servicebus/websocket"
WEBSOCKET_PROTOCOL = "AMQPWSB10"
"""Path and subprotocol of AMQP over WebSockets, as the SDKs ask for them."""

AZURE_DOMAINS = (
    ".servicebus.windows.net",
    ".servicebus.usgovcloudapi.net",
    ".servicebus.chinacloudapi.cn",
    ".servicebus.cloudapi.de",
)
"""What the host names of Azure's namespaces end with, cloud by cloud."""

Transport = Literal["tcp", "websocket"]


@dataclass(frozen=True, slots=True)
class RemoteAddress:
    """The address of a namespace.

    A server's certificate is always verified, against `host`.

    Attributes:
        namespace: the namespace's host name, with the port if the connection string has one: the
            first part of each token's audience. Its host is what the server is asked for.
        host: the host to connect to: the namespace's own, or that of `custom_endpoint_address`.
        port: the port to connect to.
        transport: AMQP on a stream, or in WebSocket frames.
        tls: whether the stream is encrypted; only `UseDevelopmentEmulator=true` says no.
        ca_file: certificates of authorities that may have signed the server's, beside the system's
            own; `None` for the system's alone.
        entity: the entity that the connection string is for (`EntityPath`); `None` for any.
        administration_port: the port of administration over HTTP: the one that is given for all, as
            a bridge has it, or else 443, and the emulator's own.
        is_port_given: whether an endpoint names the port.
    """

    namespace: str
    host: str
    port: int
    transport: Transport = "tcp"
    tls: bool = True
    ca_file: Path | None = None
    entity: str | None = None
    administration_port: int = HTTPS_PORT
    is_port_given: bool = False

    @classmethod
    def of(
        cls,
        connection_string_or_host: str,
        *,
        custom_endpoint_address: str | None = None,
        ca_file: str | Path | None = None,
        websocket: bool = False,
    ) -> Self:
        """Return the address in a connection string, or of a namespace's host name.

        Args:
            connection_string_or_host: `Endpoint=sb://...;...`, or `NAME.servicebus.windows.net`. A
                port in it is taken, as the SDK for JavaScript does (Python's ignores it).
            custom_endpoint_address: where to connect to instead, as the SDKs take it:
                `sb://host:port`, or `host:port`; an application gateway or a tunnel.
            ca_file: certificates in PEM, for a server with a certificate of a private authority.
            websocket: AMQP over WebSockets, on port 443: what many networks let through.

        Raises:
            ValueError: the text is neither, or the endpoint is malformed; it shows no key.
        """
        text = connection_string_or_host.strip()
        if connection_string.is_connection_string(text):
            given = connection_string.read(text)
        else:
            given = connection_string.ConnectionString(authority=_authority(text, "namespace"))
        host, port = given.host, given.port
        if custom_endpoint_address is not None:
            custom = urlsplit(f"//{_authority(custom_endpoint_address, 'endpoint')}")
            host, port = custom.hostname or "", custom.port
        return cls(
            namespace=given.authority,
            host=host,
            port=port or _port(is_plain=given.is_emulator, websocket=websocket),
            transport="websocket" if websocket else "tcp",
            tls=not given.is_emulator,
            ca_file=None if ca_file is None else Path(ca_file),
            entity=given.entity_path or None,
            administration_port=port
            or (EMULATOR_ADMINISTRATION_PORT if given.is_emulator else HTTPS_PORT),
            is_port_given=port is not None,
        )

    @property
    def hostname(self) -> str:
        """The namespace's host name without a port, as AMQP's `open` names it."""
        return urlsplit(f"//{self.namespace}").hostname or self.namespace

    @property
    def is_azure(self) -> bool:
        """Whether the namespace is Azure's, of the public cloud or a national one, by its name."""
        return self.hostname.lower().endswith(AZURE_DOMAINS)

    @property
    def url(self) -> str:
        """The URL to connect to, for messages to people and for WebSockets."""
        schemes = {"tcp": ("amqp", "amqps"), "websocket": ("ws", "wss")}
        path = WEBSOCKET_PATH if self.transport == "websocket" else ""
        return f"{schemes[self.transport][self.tls]}://{self._url_host}:{self.port}{path}"

    @property
    def administration_url(self) -> str:
        """The URL of administration, without a path."""
        return self._http_url(self.administration_port)

    @property
    def other_administration_url(self) -> str | None:
        """Where a bridge administers, too: at its port of AMQP; `None` if a port is given.

        Administration of a bridge can be away from the emulator's port, which is then assumed.
        """
        is_assumed = not self.is_port_given and not self.tls and self.transport == "tcp"
        return self._http_url(self.port) if is_assumed else None

    def _http_url(self, port: int) -> str:
        scheme, default = ("https", HTTPS_PORT) if self.tls else ("http", HTTP_PORT)
        return f"{scheme}://{self._url_host}{f':{port}' if port != default else ''}"

    @property
    def _url_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    def audience(self, entity: str) -> str:
        """Return the audience of a token for an entity, as the SDKs write it."""
        return f"sb://{self.namespace}/{entity}"

    def check(self, entity: str) -> None:
        """Do nothing if the connection string is for any entity, for this one, or for its topic.

        Raises:
            RemoteOtherEntity: it is for another one. The SDKs refuse a sender or receiver likewise.
        """
        bound = (self.entity or "").strip("/")
        path = entity.strip("/").lower()
        if not bound or path == bound.lower():
            return
        below = path.removeprefix(bound.lower()) if path.startswith(bound.lower()) else ""
        if not below.startswith(("/subscriptions/", "/$")):
            text = f"The connection string is for {bound!r} alone (EntityPath), not for {entity!r}."
            raise RemoteOtherEntity(OTHER_ENTITY, text)


def _port(*, is_plain: bool, websocket: bool) -> int:
    if websocket:
        return HTTP_PORT if is_plain else HTTPS_PORT
    return AMQP_PORT if is_plain else AMQPS_PORT


def _authority(text: str, what: str) -> str:
    """Return host and port of a URL or a bare name."""
    parts = urlsplit(text.strip() if "://" in text else f"//{text.strip()}")
    try:
        _ = parts.port
    except ValueError:
        raise ValueError(f"The port of the {what} {text!r} is no number up to 65535.") from None
    if not parts.hostname or any(each.isspace() for each in parts.netloc) or parts.username:
        raise ValueError(f"The {what} {text!r} names no host: NAME.servicebus.windows.net.")
    return parts.netloc
