"""Settings of a gateway."""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge.machine.amqp10.limits import Limits
from bridge.machine.transactions.limits import ALL_HELD_BYTES_MAX
from bridge.wire.own_operations import CONTAINER_ID

MECHANISMS = ("MSSBCBS", "ANONYMOUS", "PLAIN", "EXTERNAL")
"""SASL mechanisms of Service Bus. Only PLAIN proves anything: the others get rights by `$cbs`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Settings of a gateway.

    Attributes:
        container_id: the gateway's name in `open`.
        namespace_name: the namespace as Azure's error texts name it.
        connections_max: maximum of connections, of all clients together (Azure: 5,000 a namespace).
        unauthenticated_max: maximum of unauthenticated connections of one address.
        authorization_s: time after which a connection without a valid token is dropped ("within
            about 20 seconds", Service Bus's AMQP guide).
        refused_s: the same after a refused token, of four: the JavaScript SDK waits 30 s between
            two of them, and does not survive the end of the connection meanwhile.
        send_credit: messages in flight from a client on one link.
        token_credit: requests of a client under way on one `$cbs` link.
        request_credit: requests of a client under way on one `$management` link. The Python SDK's
            asyncio half writes more than it has credit for, and loses the link.
        output_bytes_high: unread bytes of a client above which nothing more is received for the
            client.
        input_bytes_high: bytes of a client's unconfirmed messages and requests under way above
            which the client is not read from.
        waiting_bytes_max: unconfirmed bytes of all clients together.
        unfinished_bytes_max: bytes of incomplete frames and messages, on all connections.
        transacted_bytes_max: bytes of all operations of transactions that are not discharged, on
            all connections.
        unfinished_s: time for the rest of an incomplete frame or message.
        unread_s: how long a client may leave its output unread, once the output fills its buffers.
        unread_max: clients that may leave their output unread at a time.
        turn_s: how long the input of clients is processed in one turn of the event loop.
        unauthenticated_turn_s: the same for unauthenticated clients.
        fetch_bytes: bytes that may be asked for ahead on one link, estimated from its last
            messages.
        fetch_max: messages that may be asked for ahead on one link.
        rabbitmq_ports: RabbitMQ's own ports, which a client of RabbitMQ's own protocol is told.
        stop_s: how long a stop waits for operations under way; messages that RabbitMQ has not
            confirmed by then stay unanswered.
    """

    container_id: str = CONTAINER_ID
    namespace_name: str = "sbemulatorns"
    connections_max: int = 5_000
    unauthenticated_max: int = 100
    authorization_s: float = 20.0
    refused_s: float = 40.0
    send_credit: int = 1_000
    token_credit: int = 100
    request_credit: int = 2_000
    output_bytes_high: int = 1_048_576
    input_bytes_high: int = 16_777_216
    waiting_bytes_max: int = 268_435_456
    unfinished_bytes_max: int = 268_435_456
    transacted_bytes_max: int = ALL_HELD_BYTES_MAX
    unfinished_s: float = 60.0
    unread_s: float = 120.0
    unread_max: int = 256
    turn_s: float = 0.01
    unauthenticated_turn_s: float = 0.004
    fetch_bytes: int = 4_194_304
    fetch_max: int = 1_000
    rabbitmq_ports: tuple[int, ...] = ()
    stop_s: float = 1.4
    limits: Limits = field(default_factory=Limits)
