"""A gateway on the engine in memory, in a process of its own; prints its port, ends with its input.

python -m tests.conformance.lone_gateway
"""

from __future__ import annotations

import asyncio
import sys

from tests.conformance.served import gateway


async def main() -> None:
    """Serve until the input ends."""
    async with gateway() as (_, port):
        print(port, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
