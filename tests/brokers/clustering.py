"""What tests do with a private node beside starting and ending it: `rabbitmqctl`, and clusters."""

from __future__ import annotations

import asyncio
from typing import Any

from bridge.broker.errors import NodeFailed
from bridge.broker.node.private import START_TIMEOUT_S, Node

CTL_TIMEOUT_S = 180.0
"""rabbitmqctl gives up by itself after 60 s, mostly."""


async def ctl(node: Node, *arguments: str) -> str:
    """Run `rabbitmqctl` against a node and return what it prints.

    Raises:
        NodeFailed: with what it printed, when it failed.
    """
    process = await asyncio.create_subprocess_exec(
        node._installation.scripts / "rabbitmqctl",
        *arguments,
        env=node._environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(CTL_TIMEOUT_S):
            output = (await process.communicate())[0].decode(errors="replace")
    except TimeoutError:
        process.kill()
        await process.wait()
        text = f"rabbitmqctl {' '.join(arguments)} took more than {CTL_TIMEOUT_S:g} s"
        raise NodeFailed(text=text) from None
    if process.returncode:
        raise NodeFailed(text=f"rabbitmqctl {' '.join(arguments)}: {output.strip()}")
    return output


def membership(node: Node) -> dict[str, Any]:
    """Return the options of nodes that shall join one that was started."""
    return {"epmd_port": node.epmd_port, "cookie": node._files._cookie_file.read_text()}


async def join(node: Node, other: Node) -> None:
    """Make a node a member of another one's cluster; what it held is dropped."""
    await ctl(node, "stop_app")
    await ctl(node, "join_cluster", other.name)
    await ctl(node, "start_app")
    async with asyncio.timeout(START_TIMEOUT_S):
        await node._until_it_answers()
