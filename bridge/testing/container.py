"""RabbitMQ and the bridge in Docker, by testcontainers (`pip install testcontainers`)."""

from __future__ import annotations

import base64
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

RABBITMQ_IMAGE = "rabbitmq:4.3-management"
IMAGE = "busbridge"
"""The image's tag in `docker build --file docker/Dockerfile --tag busbridge .`."""

RULE = "RootManageSharedAccessKey"
LOGIN = "busbridge", "busbridge"

_START_S = 120
_RABBITMQ_UP = "Server startup complete"
_BRIDGE_UP = "ready admin="
_RULES = "/etc/busbridge/rules.json"
_AMQP, _HTTP = 5672, 15672


def rules_document(key: str) -> str:
    """Return the access rules of the bridge: a single rule, with all rights."""
    rights = ["Send", "Listen", "Manage"]
    return json.dumps({"rules": [{"name": RULE, "primaryKey": key, "rights": rights}]})


def bridge_environment(host: str) -> dict[str, str]:
    """Return the environment variables of a bridge in Docker.

    Args:
        host: RabbitMQ's host name there.
    """
    user, password = LOGIN
    return {
        "BUSBRIDGE_RABBITMQ_URL": f"amqp://{user}:{password}@{host}:{_AMQP}/",
        "BUSBRIDGE_MANAGEMENT_URL": f"http://{host}:{_HTTP}",
        "BUSBRIDGE_AUTH": _RULES,
    }


def connection_string(host: str, port: int, key: str) -> str:
    """Return the connection string for an Azure SDK."""
    return (
        f"Endpoint=sb://{host}:{port};SharedAccessKeyName={RULE};SharedAccessKey={key};"
        "UseDevelopmentEmulator=true;"
    )


@contextmanager
def rabbitmq(image: str = RABBITMQ_IMAGE) -> Iterator[tuple[str, str]]:
    """Run a RabbitMQ; yield the AMQP URL, without a virtual host, and the management API's URL."""
    with _started(_rabbitmq(image), _RABBITMQ_UP) as running:
        login, host = ":".join(LOGIN), running.get_container_host_ip()
        amqp, http = (running.get_exposed_port(port) for port in (_AMQP, _HTTP))
        yield f"amqp://{login}@{host}:{amqp}", f"http://{login}@{host}:{http}"


class BusbridgeContainer:
    """A RabbitMQ and a bridge in Docker, on a network of their own; a context manager.

    Args:
        image: the bridge's image.
        rabbitmq_image: RabbitMQ's image, with the management plugin.

    Attributes:
        connection_string: the connection string for an Azure SDK; once started.
        rabbitmq_url: RabbitMQ's URL, for the library or a native client; once started.
    """

    def __init__(self, image: str = IMAGE, rabbitmq_image: str = RABBITMQ_IMAGE) -> None:
        self._image = image
        self._rabbitmq_image = rabbitmq_image
        self._parts = ExitStack()
        self.connection_string = ""
        self.rabbitmq_url = ""

    def __enter__(self) -> BusbridgeContainer:
        return self.start()

    def __exit__(self, *args: Any) -> None:
        self.stop()

    def start(self) -> BusbridgeContainer:
        """Start RabbitMQ and the bridge; return when the bridge is ready."""
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End RabbitMQ and the bridge, with all their data."""
        self._parts.close()

    def _start(self) -> None:
        from testcontainers.core.network import Network

        network = self._parts.enter_context(Network())
        broker = _rabbitmq(self._rabbitmq_image)
        broker = broker.with_network(network).with_network_aliases("rabbitmq")
        broker = self._parts.enter_context(_started(broker, _RABBITMQ_UP))
        key = base64.b64encode(os.urandom(32)).decode()
        bridge = self._bridge(key).with_network(network)
        bridge = self._parts.enter_context(_started(bridge, _BRIDGE_UP))
        host = bridge.get_container_host_ip()
        port = int(bridge.get_exposed_port(_AMQP))
        self.connection_string = connection_string(host, port, key)
        place = f"{broker.get_container_host_ip()}:{broker.get_exposed_port(_AMQP)}"
        self.rabbitmq_url = f"amqp://{':'.join(LOGIN)}@{place}/"

    def _bridge(self, key: str) -> Any:
        from testcontainers.core.container import DockerContainer

        folder = Path(self._parts.enter_context(tempfile.TemporaryDirectory()))
        rules = folder / "rules.json"
        rules.write_text(rules_document(key))
        rules.chmod(0o644)  # the bridge runs as a user of its own in the container
        bridge = DockerContainer(self._image).with_exposed_ports(_AMQP)
        for name, value in bridge_environment("rabbitmq").items():
            bridge = bridge.with_env(name, value)
        return bridge.with_volume_mapping(str(rules), _RULES, "ro")


def _rabbitmq(image: str) -> Any:
    from testcontainers.core.container import DockerContainer

    user, password = LOGIN
    container = DockerContainer(image).with_exposed_ports(_AMQP, _HTTP)
    container = container.with_env("RABBITMQ_DEFAULT_USER", user)
    return container.with_env("RABBITMQ_DEFAULT_PASS", password)


@contextmanager
def _started(container: AbstractContextManager[Any], line: str) -> Iterator[Any]:
    """Run a container; yield the container when a given line was printed."""
    from testcontainers.core.waiting_utils import wait_for_logs

    with container as running:
        wait_for_logs(running, line, timeout=_START_S)
        yield running
