"""The messages that a client holds, unacked."""

from __future__ import annotations

from bridge.client.core.wire import Channel
from bridge.message.held import Held, HeldCopy

HeldMessage = Held[Channel]
Copy = HeldCopy[Channel]
