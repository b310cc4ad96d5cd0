"""URLs of RabbitMQ: `amqp[s]://user:password@host[:port][,host2[:port]]/vhost`."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote

_PORTS = {"amqp": 5672, "amqps": 5671}


@dataclass(frozen=True, slots=True)
class RabbitUrl:
    """The node or nodes of a RabbitMQ, and a login.

    Attributes:
        is_tls: the scheme is amqps.
        hosts: host and port of each node, in their order.
        vhost: the virtual host; an empty path is `/`.
        user: the user's name; `None` where the URL names none.
        password: the user's password; `None` where the URL has no colon for one.
    """

    is_tls: bool
    hosts: tuple[tuple[str, int], ...]
    vhost: str
    user: str | None
    password: str | None = field(repr=False)

    @property
    def login(self) -> tuple[str, str]:
        """User and password; guest's where the URL names no user."""
        return ("guest", "guest") if self.user is None else (self.user, self.password or "")


def read_url(url: str) -> RabbitUrl:
    """Read a URL. User, password and virtual host are percent-encoded, as in every URL.

    Raises:
        ValueError: with a sentence that explains the fault, and never quotes the password.
    """
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if not separator or scheme not in _PORTS:
        raise ValueError("a RabbitMQ URL begins with amqp:// or amqps://")
    if "?" in rest or "#" in rest:
        raise ValueError("a RabbitMQ URL here takes no query; TLS files are options of their own")
    place, _, path = rest.partition("/")
    if "/" in path:
        raise ValueError("a virtual host in a URL is percent-encoded: / is written %2F")
    login, _, nodes = place.rpartition("@")
    name, has_password, password = login.partition(":")
    return RabbitUrl(
        scheme == "amqps",
        tuple(_host(node, _PORTS[scheme]) for node in nodes.split(",")),
        unquote(path) or "/",
        unquote(name) if login else None,
        unquote(password) if has_password else None,
    )


def _host(node: str, port: int) -> tuple[str, int]:
    host, separator, number = node.rpartition(":")
    if node.startswith("["):
        host, _, number = node[1:].partition("]")
        separator, number = number[:1], number[1:]
    elif not separator:
        host, number = node, ""
    if not host or separator not in ("", ":"):
        raise ValueError("a RabbitMQ URL names a host, or several with commas between them")
    if not number:
        return host, port
    if not number.isascii() or not number.isdigit() or not 0 < int(number) < 65536:
        # The text may be a part of a password that is not percent-encoded: do not quote it.
        raise ValueError("a RabbitMQ URL has something behind a host that is not a port number")
    return host, int(number)
