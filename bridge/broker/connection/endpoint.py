"""The address of RabbitMQ and the login for it."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from bridge.model.rabbitmq_url import read_url


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A RabbitMQ, or the nodes of one cluster.

    Attributes:
        hosts: host and port of each node; they are tried in this order.
        vhost: the virtual host.
        user: the user's name; with `is_external` the certificate names the user.
        password: the user's password.
        tls: the TLS settings; None means plain TCP.
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
            without it the system's authorities count.
        cert: file of the client's certificate chain.
        key: file of the certificate's key, when the key is not in `cert`.

    Raises:
        ValueError: with a sentence that says what is wrong. It never quotes the password.
    """
    found = read_url(url)
    if not found.is_tls and (ca or cert or key):
        raise ValueError("certificates need amqps://")
    is_external = bool(cert) and found.password is None
    user, password = (found.user or "", "") if is_external else found.login
    return Endpoint(
        hosts=found.hosts,
        vhost=found.vhost,
        user=user,
        password=password,
        tls=_tls(ca, cert, key) if found.is_tls else None,
        is_external=is_external,
    )


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
