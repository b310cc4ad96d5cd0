"""The boot (node and start of that node) that a connection leads to.

A sequencer may believe its journal only while the broker has not failed in between (see
docs/design/takeover-and-recovery.md), so it must recognise a boot. Uptimes of the management API
are up to five seconds old. An Erlang process id, though, names its node and the node's *creation*,
a number of 32 bits that differs at every start. RabbitMQ shows a process id to its clients: the
reply address of direct reply-to contains one (seen alike on 4.0 and 4.3).
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

    Two equal names mean the same boot of the same node. In a cluster the name says nothing about
    the other nodes.
    """
    with await connection.channel() as channel:
        probe = await channel.declarations.declare_queue(exclusive=True)
        await take_address(channel)
        properties = Properties(reply_to=DIRECT_REPLY_TO).encode()
        channel.publisher.publish("", probe.name, properties, b"")
        found = await channel.consumers.get(probe.name)  # after the publish, on the same channel
        if found is None:
            raise BrokerSilent(text="no reply address")
        channel.consumers.ack(found.tag)
    return _boot_of(Properties.decode(found.properties).reply_to or "")


def _boot_of(address: str) -> str:
    """Return the boot that a channel's address contains, as `node_boot` names it.

    Raises:
        BrokerError: the text is no address of a channel, or one of an unknown form.
    """
    encoded = address.removeprefix(DIRECT_REPLY_TO + ".").partition(".")[0]
    try:
        pid = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except ValueError:  # not only binascii.Error: non-ASCII text raises a plain ValueError
        pid = b""
    if not pid.startswith(_NEW_PID) or len(pid) < 16:
        raise BrokerError(text=f"a reply address of an unknown form: {address!r}")
    return f"{pid[2:-12].hex()}-{pid[-4:].hex()}"
