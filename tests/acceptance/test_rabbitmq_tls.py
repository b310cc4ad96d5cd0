"""`busbridge serve` before a RabbitMQ that speaks TLS only to clients with a certificate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.broker.node.ports import Ports
from tests.acceptance.sdk import client_of, send, take
from tests.acceptance.test_serve import expect_sentence, ready, serve
from tests.brokers.certificates import make_certificates
from tests.fixtures.bridge import Bridge
from tests.fixtures.broker import Broker

pytestmark = pytest.mark.long

ENTITIES = {"orders": {}}


class Secured:
    """A RabbitMQ whose TLS ports demand a client's certificate, and what the bridge is told of it.

    Attributes:
        address: host and port of AMQP over TLS.
        https: the management API over TLS, without a login.
        folder: where the certificates are.
    """

    def __init__(self, start_broker: Callable[..., Broker], folder: Path) -> None:
        self.folder = folder
        make_certificates(folder)
        self._ports = Ports(2)
        port, https_port = self._ports.numbers
        self.address = f"localhost:{port}"
        self.https = f"https://localhost:{https_port}"
        files = {"cacertfile": "ca.pem", "certfile": "server.pem", "keyfile": "server.key"}
        demand = {name: str(folder / file) for name, file in files.items()} | {
            "verify": "verify_peer",
            "fail_if_no_peer_cert": "true",
        }
        self.broker = start_broker(
            plugins=("rabbitmq_management", "rabbitmq_auth_mechanism_ssl"),
            configuration={
                "listeners.ssl.1": f"127.0.0.1:{port}",
                "management.ssl.ip": "127.0.0.1",
                "management.ssl.port": str(https_port),
                "ssl_cert_login_from": "common_name",
                "auth_mechanisms.1": "PLAIN",
                "auth_mechanisms.2": "EXTERNAL",
            }
            | {f"ssl_options.{name}": value for name, value in demand.items()}
            | {f"management.ssl.{name}": value for name, value in demand.items()},
        )
        node = self.broker.node
        assert node is not None
        node.rabbitmqctl("add_user", "client", "word")
        node.rabbitmqctl("set_user_tags", "client", "policymaker", "monitoring")
        node.rabbitmqctl("set_permissions", "client", ".*", ".*", ".*")

    @property
    def ca(self) -> tuple[str, ...]:
        """The option that names the CA."""
        return "--rabbitmq-ca", str(self.folder / "ca.pem")

    @property
    def certificate(self) -> tuple[str, ...]:
        """The options that name the client's certificate."""
        files = str(self.folder / "client.pem"), str(self.folder / "client.key")
        return "--rabbitmq-cert", files[0], "--rabbitmq-key", files[1]


@pytest.fixture
def secured(start_broker: Callable[..., Broker], tmp_path: Path) -> Secured:
    """A RabbitMQ of this test's own."""
    return Secured(start_broker, tmp_path / "certificates")


def test_a_client_certificate(secured: Secured, config: Path) -> None:
    """With CA and certificate the SDK's messages pass; the login is PLAIN, or the certificate's.

    The management API is asked over TLS with the same files.
    """
    https = secured.https.replace("https://", "https://client:word@")
    for number, login in enumerate(
        (
            ("--rabbitmq-url", f"amqps://client:word@{secured.address}/", secured.https),
            ("--rabbitmq-url", f"amqps://{secured.address}/", https),
        )
    ):
        options = (*login[:2], "--management-url", login[2], *secured.ca, *secured.certificate)
        bridge = Bridge((*options, "--config", str(config)), amqp_url="")
        try:
            bridge.start()
            with client_of(bridge) as client, client.get_queue_receiver("orders") as receiver:
                send(client, "orders", f"m{number}")
                assert [str(message) for message in take(receiver)] == [f"m{number}"]
            assert ready(bridge) == (200, [])
            users = {row["user"] for row in connections(secured.broker)}
            assert users == {"client"}
            assert all(row["ssl"] for row in connections(secured.broker))
        finally:
            bridge.stop()


def connections(broker: Broker) -> list[dict[str, object]]:
    """The connections that RabbitMQ sees, by rabbitmqctl: without delay."""
    assert broker.node is not None
    text = broker.node.rabbitmqctl("--quiet", "list_connections", "user", "ssl", "auth_mechanism")
    rows = [line.split("\t") for line in text.splitlines()]
    return [
        {"user": user, "ssl": ssl == "true", "mechanism": mechanism}
        for user, ssl, mechanism in (row for row in rows if len(row) == 3)
        if user != "user"
    ]


def test_what_is_wrong_with_certificates_is_said(secured: Secured, tmp_path: Path) -> None:
    """No certificate, somebody else's CA, no login for the management API: a sentence each."""
    url = ("--rabbitmq-url", f"amqps://client:word@{secured.address}/")
    plain = ("--management-url", secured.broker.management_url)
    https = ("--management-url", secured.https)
    make_certificates(tmp_path / "others")
    other_ca = ("--rabbitmq-ca", str(tmp_path / "others" / "ca.pem"))

    for options, *parts in (
        ((*url, *plain, *secured.ca), secured.address, "certificate"),
        ((*url, *plain, *secured.certificate), secured.address, "TLS", "certificate"),
        ((*url, *plain, *other_ca, *secured.certificate), secured.address, "TLS", "certificate"),
        ((*url, *https, *secured.ca), secured.https, "certificate"),
        ((*url, *https, *other_ca, *secured.certificate), secured.https, "certificate"),
    ):
        expect_sentence(serve(*options), 1, *parts)
    by_certificate = ("--rabbitmq-url", f"amqps://{secured.address}/")
    done = serve(*by_certificate, *https, *secured.ca, *secured.certificate)
    expect_sentence(done, 2, "--management-url", "user:password")
