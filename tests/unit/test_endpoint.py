"""RabbitMQ URLs: what they mean, and what is said of those that mean nothing."""

from __future__ import annotations

import pytest

from bridge.broker.connection.endpoint import Endpoint, parse_url
from bridge.client import address as client

HOST = ("rabbit", 5672)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("amqp://rabbit", Endpoint(hosts=(HOST,))),
        ("amqp://rabbit/", Endpoint(hosts=(HOST,))),
        ("amqp://rabbit/%2F", Endpoint(hosts=(HOST,))),
        ("amqp://rabbit/team%2Fa", Endpoint(hosts=(HOST,), vhost="team/a")),
        ("amqp://u:p%40ss@rabbit", Endpoint(hosts=(HOST,), user="u", password="p@ss")),
        ("amqp://u@rabbit", Endpoint(hosts=(HOST,), user="u", password="")),
        ("amqp://u:@rabbit", Endpoint(hosts=(HOST,), user="u", password="")),
        ("amqp://a,b:1,[::1]:2", Endpoint(hosts=(("a", 5672), ("b", 1), ("::1", 2)))),
        ("amqp://[::1]", Endpoint(hosts=(("::1", 5672),))),
        ("AMQP://rabbit:", Endpoint(hosts=(HOST,))),
    ],
)
def test_a_url_means(url: str, expected: Endpoint) -> None:
    """Login, hosts, ports and virtual host stand where they do in every RabbitMQ URL."""
    assert expected == parse_url(url)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://rabbit", "begins with amqp"),
        ("rabbit:5672", "begins with amqp"),
        ("amqp://", "names a host"),
        ("amqp://a,,b", "names a host"),
        ("amqp://:5672", "names a host"),
        ("amqp://[::1]5672", "names a host"),
        ("amqp://rabbit:port", "not a port"),
        ("amqp://rabbit:70000", "not a port"),
        ("amqp://rabbit/a/b", "%2F"),
        ("amqp://rabbit?heartbeat=5", "query"),
    ],
)
def test_what_is_wrong_with_a_url_is_said(url: str, sentence: str) -> None:
    """Each mistake has a sentence of its own, for the bridge as for the library."""
    for read in (parse_url, client.parse):
        with pytest.raises(ValueError, match=sentence):
            read(url)


def test_tls_has_its_port_and_checks_the_host() -> None:
    """amqps means port 5671 and a verified certificate."""
    endpoint = parse_url("amqps://rabbit")

    assert endpoint.hosts == (("rabbit", 5671),)
    assert endpoint.tls is not None
    assert endpoint.tls.check_hostname


def test_certificates_need_tls() -> None:
    """A certificate that would not be used is refused."""
    with pytest.raises(ValueError, match="amqps"):
        parse_url("amqp://rabbit", ca="ca.pem")


def test_no_password_is_shown() -> None:
    """Neither an endpoint nor an error shows the password."""
    endpoint = parse_url("amqp://u:geheim@rabbit/v")

    assert "geheim" not in repr(endpoint) + str(endpoint)
    with pytest.raises(ValueError, match="not a port") as error:
        parse_url("amqp://u:geheim/@rabbit")
    assert "geheim" not in str(error.value)
    assert str(endpoint) == "amqp://rabbit:5672/v"
