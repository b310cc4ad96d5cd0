"""Which boot of which node a connection ends at.

A sequencer may believe its journal only while the broker has not failed in between (see
docs/design/takeover-and-recovery.md), so it must recognise a boot. Uptimes of the management API
are up to five seconds old; an Erlang process id, though, names its node and the *creation* that the
node got when it started, a number of 32 bits that differs at every start. RabbitMQ shows one to its
clients: it is what the reply address of direct reply-to is made of (seen alike on 3.10, 4.0 and
4.3).
"""

from __future__ import annotations

import base64

from bridge.broker.connection.address import take_address
from bridge.broker.connection.connection import Connection
from bridge.broker.errors import BrokerError, BrokerSilent
from bridge.wire.basic import Properties
from bridge.wire.headers import DIRECT_REPLY_TO

_NEW_PID = b"\x83X"
"""External term format, then NEW_PID_EXT: node, id, serial, and four octets of creation
(https://www.erlang.org/doc/apps/erts/erl_ext_dist.html#new_pid_ext)."""


async def node_boot(connection: Connection) -> str:
    """Return a name of the running boot of the connection's node.

    Two equal names mean the same boot of the same node. In a cluster it says nothing about the
    other nodes.
    """
    with await connection.channel() as channel:
        probe = await channel.declarations.declare_queue(exclusive=True)
        await take_address(channel)
        properties = Properties(reply_to=DIRECT_REPLY_TO).encode()
        channel.publisher.publish("", probe.name, properties, b"")
        found = await channel.consumers.get(probe.name)  # behind the publish, in one channel
        if found is None:
            raise BrokerSilent(text="no reply address")
        channel.consumers.ack(found.tag)
    return boot_of(Properties.decode(found.properties).reply_to or "")


def node_of(boot: str) -> str:
    """Return which node a boot is one of."""
    return boot.partition("-")[0]


def boot_of(address: str) -> str:
    """Return the boot that a channel's address is of, as `node_boot` names it.

    Raises:
        BrokerError: it is no such address.
    """
    encoded = address.removeprefix(DIRECT_REPLY_TO + ".").partition(".")[0]
    try:
        pid = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except ValueError:  # not only binascii.Error: a text that is not ASCII is one, too
        pid = b""
    if not pid.startswith(_NEW_PID) or len(pid) < 16:
        raise BrokerError(text=f"a reply address of an unknown form: {address!r}")
    return f"{pid[2:-12].hex()}-{pid[-4:].hex()}"
