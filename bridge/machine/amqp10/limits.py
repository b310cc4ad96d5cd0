"""Limits of an AMQP 1.0 connection."""

from __future__ import annotations

from dataclasses import dataclass

DELIVERY_ID_FIRST = 0x40000000
"""The first transfer id of our sessions. The Python SDK settles its own delivery N when the server
settles the server's N: the two ranges must not meet.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a connection.

    Attributes:
        frame_bytes_max: the largest frame that we take, and the most that a client makes us hold.
        unauthenticated_frame_bytes_max: the same until the peer has proved its identity.
        unauthenticated_message_bytes_max: the largest message until then (a token has up to 32 KB,
            and may come in one frame).
        unauthenticated_links_max, unauthenticated_sessions_max: the maximum number of links and of
            sessions until then. .NET begins the session of each `$management` link before it puts
            the token (1.2 KB).
        links_max: the maximum number of links of a connection, in all sessions (Azure: 5,000).
        held_bytes_max: the maximum size of messages that have not come whole, on all links of a
            connection.
        frame_out_bytes_max: the largest frame that we write, if the peer takes as much.
        channel_max: highest channel number, 4,999 as at Azure.
        handle_max: highest handle of a session ("The maximum number of handles is 4999." is
            Azure's limit for a connection).
        incoming_window: transfers that a peer may send before we raise the window (Azure: 5,000).
        outgoing_window: our stated outgoing window; nothing depends on it.
        idle_time_out_ms: a peer that is silent for twice this long is gone.
        heartbeat_ms_max: our longest silence, whatever the peer allows.
        sasl_frame_bytes_max: the specification says 512; a PLAIN response may be longer.
        unsettled_max: the maximum number of unsettled deliveries of a link on which we send.
    """

    frame_bytes_max: int = 262_144
    unauthenticated_frame_bytes_max: int = 65_536
    unauthenticated_message_bytes_max: int = 65_536
    unauthenticated_links_max: int = 8
    unauthenticated_sessions_max: int = 256
    links_max: int = 5_000
    held_bytes_max: int = 268_435_456
    frame_out_bytes_max: int = 1_048_576
    channel_max: int = 4_999
    handle_max: int = 4_999
    incoming_window: int = 5_000
    outgoing_window: int = 0x7FFFFFFF
    idle_time_out_ms: int = 120_000
    heartbeat_ms_max: int = 30_000
    sasl_frame_bytes_max: int = 8_192
    unsettled_max: int = 65_536
