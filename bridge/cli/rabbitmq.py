"""The RabbitMQ of a bridge: the given one, or a private one that is started again if it ends."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from bridge.background.supervisor import Supervisor
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import NodeFailed
from bridge.broker.node.installation import Installation
from bridge.broker.node.private import Node
from bridge.cli.settings import Settings, SettingsError
from bridge.cli.stopping import Stopping

STARTS_MAX = 3
"""Number of starts in a row that fail after RabbitMQ has ended; then the bridge ends, too."""

_log = logging.getLogger("busbridge.serve")


class PrivateRabbitMQ:
    """Keeps a private node running, as work under the supervisor."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._failed_starts = 0

    async def run(self) -> None:
        """Start the node unless it runs, and wait for its end.

        Raises:
            NodeFailed: it cannot be started, or has ended.
        """
        if not self._node.is_running:
            began_s = time.monotonic()
            try:
                await self._node.start()
            except NodeFailed:
                self._failed_starts += 1
                raise
            self._failed_starts = 0
            _log.info("rabbitmq.started_again seconds=%.1f", time.monotonic() - began_s)
        await self._node.has_ended.wait()
        raise NodeFailed(text=f"the private RabbitMQ has ended: {self._node.end}")

    def is_final(self, error: BaseException) -> bool:
        """Whether it has failed to start again for so often that the bridge gives up."""
        return self._failed_starts >= STARTS_MAX


@asynccontextmanager
async def rabbitmq_of(
    settings: Settings, stopping: Stopping, supervisor: Supervisor
) -> AsyncIterator[tuple[Endpoint, Sequence[str]]]:
    """Yield the given RabbitMQ, or a private RabbitMQ that ends with the bridge.

    Raises:
        SettingsError: no RabbitMQ is given or installed.
        NodeFailed: the private RabbitMQ cannot be started.
    """
    if settings.endpoint is not None:
        yield settings.endpoint, settings.management_urls
        return
    installation = Installation.find()
    if installation is None:
        raise SettingsError(
            f"There is no RabbitMQ 4 on this machine{_too_old()}. `make run` brings one without "
            "installing it; or install RabbitMQ 4.3, or give --rabbitmq-url."
        )
    node = Node(settings.data_dir / "rabbitmq", installation)
    began_s = time.monotonic()
    await node.start()
    print(
        f"start: RabbitMQ {installation.version_text}, its data in {node.folder}: "
        f"{time.monotonic() - began_s:.1f} s",
        flush=True,
    )
    # Its address stays the same: connections come back to it by themselves.
    private = PrivateRabbitMQ(node)
    keeping = supervisor.keep("private RabbitMQ", private.run, is_final=private.is_final)
    try:
        yield node.endpoint, (node.management_url,)
    finally:
        await stopping.end(keeping.task)
        # A kill loses nothing.
        await node.stop(stopping.left_s)


def _too_old() -> str:
    """Name the RabbitMQs of this machine that the bridge does not run on."""
    versions = ", ".join(each.version_text for each in Installation.all())
    return f" (only {versions}, which is too old)" if versions else ""
