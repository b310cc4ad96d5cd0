"""Where RabbitMQ is: from an AMQP URL, an argument, or the environment.

`amqp[s]://user:password@host[:port][,host2[:port]]/vhost`. A connection string of Azure's names no
RabbitMQ, so it needs `rabbitmq_url=` or `BUSBRIDGE_RABBITMQ_URL` beside it.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

URL_VARIABLE = "BUSBRIDGE_RABBITMQ_URL"

_PORTS = {"amqp": 5672, "amqps": 5671}


@dataclass(frozen=True, slots=True)
class Address:
    """RabbitMQ's nodes and a login; the password is not in its repr.

    Attributes:
        tls: how to speak TLS; `None` means plain TCP.
    """

    hosts: tuple[tuple[str, int], ...]
    vhost: str
    user: str
    password: str = field(repr=False)
    tls: ssl.SSLContext | None

    def __str__(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.hosts) + f" vhost {self.vhost}"


def rabbitmq_url(given: str | None, explicit: str | None, environment: Mapping[str, str]) -> str:
    """Return RabbitMQ's URL.

    Args:
        given: the connection string or namespace that the application was made for.
        explicit: `rabbitmq_url=`, which comes first.
        environment: where `BUSBRIDGE_RABBITMQ_URL` may be; it comes last.

    Raises:
        ValueError: none of them is an AMQP URL.
    """
    if explicit is not None:
        return explicit.strip()
    for candidate in (given, environment.get(URL_VARIABLE)):
        text = (candidate or "").strip()
        if text.lower().startswith(("amqp://", "amqps://")):
            return text
    raise ValueError(
        "There is no URL of RabbitMQ: give amqp[s]://user:password@host/vhost as the connection "
        f"string, as rabbitmq_url=, or as {URL_VARIABLE}."
    )


def parse(
    url: str, *, context: ssl.SSLContext | None = None, ca_file: str | None = None
) -> Address:
    """Read a URL of RabbitMQ; an empty path is the virtual host `/`.

    Args:
        context: how to speak TLS, instead of with the system's authorities.
        ca_file: the authorities that may have signed RabbitMQ's certificate.

    Raises:
        ValueError: with a sentence that says what is wrong. It never quotes the password.
    """
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if not separator or scheme not in _PORTS:
        raise ValueError("a RabbitMQ URL begins with amqp:// or amqps://")
    if "?" in rest or "#" in rest:
        raise ValueError("a RabbitMQ URL here takes no query")
    place, _, path = rest.partition("/")
    if "/" in path:
        raise ValueError("a virtual host in a URL is percent-encoded: / is written %2F")
    login, _, nodes = place.rpartition("@")
    name, _, password = (login or "guest:guest").partition(":")
    tls = None
    if scheme == "amqps":
        tls = context or ssl.create_default_context(cafile=ca_file)
    hosts = tuple(_host(node, _PORTS[scheme]) for node in nodes.split(","))
    return Address(hosts, unquote(path) or "/", unquote(name), unquote(password), tls)


def _host(node: str, port: int) -> tuple[str, int]:
    host, number = node, ""
    if node.startswith("["):
        host, _, number = node[1:].partition("]")
        number = number.removeprefix(":")
    elif ":" in node:
        host, _, number = node.rpartition(":")
    if not host or (number and not number.isdigit()):
        raise ValueError("a RabbitMQ URL names a host, or several with commas between them")
    return host, int(number) if number else port
