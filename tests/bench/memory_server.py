"""Run the gateway on the in-memory namespace: `python -m tests.bench.memory_server q1 q2`.

Prints `ready PORT` when it listens. The key is the emulator's well-known one.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import socket

from bridge.access.access import Access
from bridge.gateway.client.settings import GatewaySettings
from bridge.gateway.server import Gateway
from bridge.model.access_rules import AccessRuleSet
from bridge.model.entity import AuthorizationRule, Queue, Right
from tests.bench.memory_namespace import MemoryNamespace

ROOT_RULE = AuthorizationRule(
    name="RootManageSharedAccessKey", primary_key="SAS_KEY_VALUE", rights=frozenset(Right)
)


async def serve(arguments: argparse.Namespace) -> None:
    """Listen until cancelled."""
    lock_ms = arguments.lock_duration_s * 1000
    definitions = (
        Queue(name=name, lock_duration_ms=lock_ms, requires_session=arguments.requires_session)
        for name in arguments.queues
    )
    namespace = MemoryNamespace(*definitions)
    namespace.sent_bytes_max = arguments.message_bytes_max
    gateway = Gateway(namespace, Access(AccessRuleSet(namespace=(ROOT_RULE,))), GatewaySettings())
    port = await gateway.listen(socket.create_server((arguments.host, arguments.port)))
    print(f"ready {port}", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await gateway.stop()


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("queues", nargs="+")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--message-bytes-max", type=int, default=1_048_576)
    parser.add_argument("--lock-duration-s", type=int, default=60)
    parser.add_argument("--requires-session", action="store_true")
    parser.add_argument("--log-level", default="WARNING")
    parser.add_argument("--uvloop", action="store_true")
    arguments = parser.parse_args()
    logging.basicConfig(level=arguments.log_level)
    if arguments.uvloop:
        import uvloop

        uvloop.run(serve(arguments))
    else:
        asyncio.run(serve(arguments))


if __name__ == "__main__":
    main()
