"""Where RabbitMQ is and how to log in there."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from urllib.parse import unquote

_PORTS = {"amqp": 5672, "amqps": 5671}


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A RabbitMQ, or the nodes of one cluster.

    Attributes:
        hosts: host and port of each node; they are tried in this order.
        vhost: the virtual host.
        user: the user's name; with `is_external` the certificate says who it is.
        password: the user's password.
        tls: how to speak TLS; None means plain TCP.
        is_external: log in by the client certificate (SASL EXTERNAL, plugin
            rabbitmq_auth_mechanism_ssl).
    """

    hosts: tuple[tuple[str, int], ...]
    vhost: str = "/"
    user: str = "guest"
    password: str = field(default="guest", repr=False)
    tls: ssl.SSLContext | None = None
    is_external: bool = False

    def __str__(self) -> str:
        scheme = "amqps" if self.tls else "amqp"
        hosts = ",".join(f"[{h}]:{p}" if ":" in h else f"{h}:{p}" for h, p in self.hosts)
        return f"{scheme}://{hosts}/{self.vhost if self.vhost != '/' else ''}"


def parse_url(
    url: str, *, ca: str | None = None, cert: str | None = None, key: str | None = None
) -> Endpoint:
    """Read amqp://user:password@host:port,host2:port2/vhost, or amqps.

    Args:
        url: the address. User and password are percent-encoded, as in every URL; an empty path
            means the virtual host `/`.
        ca: file of the certificate authorities that may have signed RabbitMQ's certificate;
            without it the system's are asked.
        cert: file of the client's certificate chain.
        key: file of its key, when that is not in `cert`.

    Raises:
        ValueError: with a sentence that says what is wrong. It never quotes the password.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in _PORTS:
        raise ValueError("a RabbitMQ URL begins with amqp:// or amqps://")
    if "?" in rest or "#" in rest:
        raise ValueError("a RabbitMQ URL here takes no query; TLS files are options of their own")
    address, _, path = rest.partition("/")
    if "/" in path:
        raise ValueError("a virtual host in a URL is percent-encoded: / is written %2F")
    login, _, nodes = address.rpartition("@")
    hosts = tuple(_host(node, _PORTS[scheme]) for node in nodes.split(","))
    is_tls = scheme == "amqps"
    if not is_tls and (ca or cert or key):
        raise ValueError("certificates need amqps://")
    name, has_password, password = login.partition(":")
    is_external = bool(cert) and not has_password
    if not login and not is_external:
        name, password = "guest", "guest"
    return Endpoint(
        hosts=hosts,
        vhost=unquote(path) or "/",
        user=unquote(name),
        password=unquote(password),
        tls=_tls(ca, cert, key) if is_tls else None,
        is_external=is_external,
    )


def _host(node: str, port: int) -> tuple[str, int]:
    host, number = node, ""
    if node.startswith("["):
        host, _, number = node[1:].partition("]")
        number = number.removeprefix(":")
    elif ":" in node:
        host, _, number = node.rpartition(":")
    if not host:
        raise ValueError("a RabbitMQ URL names a host, or several with commas between them")
    if number:
        if not number.isascii() or not number.isdigit() or not 0 < int(number) < 65536:
            raise ValueError(f"{number!r} is not a port number")
        port = int(number)
    return host, port


def _tls(ca: str | None, cert: str | None, key: str | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"the CA file {ca} cannot be read: {error}") from error
    if cert:
        try:
            context.load_cert_chain(cert, key)
        except (OSError, ssl.SSLError) as error:
            raise ValueError(f"the client certificate {cert} cannot be read: {error}") from error
    return context
