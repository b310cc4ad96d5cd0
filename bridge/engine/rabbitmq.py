"""What a bridge learns of its RabbitMQ at the start."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.management.api import Management
from bridge.broker.message_size import rabbitmq_bytes_max
from bridge.topology.capabilities import Capabilities


class RabbitMQ:
    """The RabbitMQ that a bridge works on.

    Attributes:
        is_clustered: it has several nodes.
    """

    def __init__(self, endpoint: Endpoint, management: Management) -> None:
        self._endpoint = endpoint
        self._management = management
        self._capabilities: Capabilities | None = None
        self.is_clustered = False

    async def learn(self) -> None:
        """Ask for version, limits and nodes.

        Raises:
            BrokerError: RabbitMQ or its management API cannot be reached, or refuses the login.
            UnsupportedVersion: RabbitMQ is older than 4.0.
        """
        overview, limit_bytes = await asyncio.gather(
            self._management.overview(), rabbitmq_bytes_max(self._endpoint)
        )
        self._capabilities = Capabilities.served(overview["rabbitmq_version"])
        if limit_bytes is not None:
            self._capabilities = replace(self._capabilities, message_bytes_max=limit_bytes)
        self.is_clustered = await self._management.is_cluster()

    def capabilities(self) -> Capabilities:
        """Return the capabilities of its version; known after `learn`."""
        assert self._capabilities is not None, "not started"
        return self._capabilities

    def consumes_once(self) -> bool:
        """Whether no channel may consume a session entity's queue twice; known after `learn`."""
        return self.is_clustered and not self.capabilities().nack_counts
