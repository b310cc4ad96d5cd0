"""The address of RabbitMQ: from an AMQP URL, an argument, or the environment.

`amqp[s]://user:password@host[:port][,host2[:port]]/vhost`. A connection string of Azure's names no
RabbitMQ: use `rabbitmq_url=` or `BUSBRIDGE_RABBITMQ_URL` beside it.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from bridge.model.rabbitmq_url import read_url

URL_VARIABLE = "BUSBRIDGE_RABBITMQ_URL"


@dataclass(frozen=True, slots=True)
class Address:
    """RabbitMQ's nodes and a login; the password is not in its repr.

    Attributes:
        tls: the TLS context; `None` means plain TCP.
    """

    hosts: tuple[tuple[str, int], ...]
    vhost: str
    user: str
    password: str = field(repr=False)
    tls: ssl.SSLContext | None

    @property
    def authority(self) -> str:
        """The first node, in a URL's form."""
        host, port = self.hosts[0]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def __str__(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.hosts) + f" vhost {self.vhost}"


def is_url(text: str) -> bool:
    """Return whether a text is meant as a URL of RabbitMQ."""
    return text.lower().startswith(("amqp://", "amqps://"))


def rabbitmq_url(given: str | None, explicit: str | None, environment: Mapping[str, str]) -> str:
    """Return RabbitMQ's URL.

    Args:
        given: the connection string or namespace that the application was made for.
        explicit: `rabbitmq_url=`, which comes first.
        environment: variables, of which `BUSBRIDGE_RABBITMQ_URL` comes last.

    Raises:
        ValueError: none of them is an AMQP URL.
    """
    if explicit is not None:
        return explicit.strip()
    for candidate in (given, environment.get(URL_VARIABLE)):
        text = (candidate or "").strip()
        if is_url(text):
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
        context: the TLS context, instead of one with the system's authorities.
        ca_file: the authorities that may have signed RabbitMQ's certificate.

    Raises:
        ValueError: the URL is malformed; the text names the fault, never the password.
    """
    found = read_url(url)
    tls = (context or ssl.create_default_context(cafile=ca_file)) if found.is_tls else None
    user, password = found.login
    return Address(found.hosts, found.vhost, user, password, tls)
