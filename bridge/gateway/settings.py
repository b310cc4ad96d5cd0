"""What a gateway is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge.machine.amqp10.limits import Limits

MECHANISMS = ("MSSBCBS", "ANONYMOUS", "PLAIN", "EXTERNAL")
"""What Service Bus offers. Only PLAIN proves anything: the others get rights by `$cbs`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a gateway.

    Attributes:
        container_id: our name in `open`.
        namespace_name: the namespace as Azure's error texts name it.
        message_bytes_max: largest message of an entity that says nothing of its own.
        connections_max: of all clients together (Azure: 5,000 a namespace).
        unauthenticated_max: unauthenticated connections of one address.
        authorization_s: a connection without a valid token is dropped after this time
            ("within about 20 seconds", Service Bus's AMQP guide).
        send_credit: messages that a client may have on their way to us on a link.
        request_credit: requests that a client may have under way on a `$cbs` or `$management` link.
        output_bytes_high: with so much unread by a client, nothing more is taken for it.
        input_bytes_high: with so much unconfirmed by RabbitMQ, a client is not read from.
        waiting_bytes_max: the same for all clients together.
        unfinished_bytes_max: of frames and messages that have not come whole, on all connections.
        unfinished_s: how long the rest of one may take to come.
        unread_s: how long a client may leave unread what it was sent, once that fills its buffers.
        unread_max: clients that may do so at a time.
        turn_s: how long the input of clients is acted on in one turn of the event loop.
        unauthenticated_turn_s: the same for those that are not authenticated.
        fetch_bytes: how much may be asked for ahead on one link, judged by its last messages.
        fetch_max: messages that may be asked for ahead on one link.
        stop_s: how long a stop waits for what is under way; what RabbitMQ has not confirmed by then
            stays unanswered.
    """

    container_id: str = "busbridge"
    namespace_name: str = "sbemulatorns"
    message_bytes_max: int = 262_144
    connections_max: int = 5_000
    unauthenticated_max: int = 100
    authorization_s: float = 20.0
    send_credit: int = 1_000
    request_credit: int = 100
    output_bytes_high: int = 1_048_576
    input_bytes_high: int = 16_777_216
    waiting_bytes_max: int = 268_435_456
    unfinished_bytes_max: int = 268_435_456
    unfinished_s: float = 60.0
    unread_s: float = 120.0
    unread_max: int = 256
    turn_s: float = 0.01
    unauthenticated_turn_s: float = 0.004
    fetch_bytes: int = 4_194_304
    fetch_max: int = 1_000
    stop_s: float = 1.4
    limits: Limits = field(default_factory=Limits)
