"""Three RabbitMQ nodes of one cluster, each killed and started again as a test likes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bridge.broker.node.installation import Installation
from tests.brokers.node import CREDENTIALS, Node

NAMES = ("a", "b", "c")

DEAD_LETTERS_AGAIN_MS = 2_000
"""What RabbitMQ dead-letters while the target's leader dies is published again after this time; by
itself it waits 3 minutes."""


class Cluster:
    """The nodes; `close` at last."""

    def __init__(self, installation: Installation, folder: Path) -> None:
        self._installation = installation
        self._folder = folder
        self.nodes: list[Node] = []

    @property
    def url(self) -> str:
        """AMQP: all hosts, with commas between them."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"amqp://{CREDENTIALS}@{hosts}"

    @property
    def management_urls(self) -> str:
        """The management API: all addresses, with commas between them."""
        return ",".join(node.management_url for node in self.nodes)

    def start(self) -> None:
        """Start the nodes and make them one cluster."""
        first = self._made(NAMES[0])
        first.start()
        others = [self._made(name, **first.membership) for name in NAMES[1:]]
        with ThreadPoolExecutor() as at_once:
            list(at_once.map(Node.start, others))
        for node in others:
            node.join(first)
        for node in self.nodes:
            self._hurry(node)

    def restart(self, node: Node) -> None:
        """Start a node again that was killed."""
        node.start()
        self._hurry(node)

    def node(self, name: str) -> Node:
        """Return a node by RabbitMQ's name of it."""
        return next(node for node in self.nodes if node.name == name)

    def close(self) -> None:
        """End all of them; the one whose epmd they share comes last."""
        for node in reversed(self.nodes):
            node.close()

    def _hurry(self, node: Node) -> None:
        name = "dead_letter_worker_publisher_confirm_timeout"
        node.rabbitmqctl("eval", f"application:set_env(rabbit, {name}, {DEAD_LETTERS_AGAIN_MS}).")

    def _made(self, name: str, **options: Any) -> Node:
        node = Node(self._installation, self._folder / name, name=name, **options)
        self.nodes.append(node)
        return node
