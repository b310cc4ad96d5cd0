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
        authorization_s: a connection without a valid token is dropped after this time
            ("within about 20 seconds", Service Bus's AMQP guide).
        send_credit: messages that a client may have on their way to us on a link.
        request_credit: requests that a client may have under way on a `$cbs` or `$management` link.
        output_bytes_high: with so much unread by a client, nothing more is taken for it.
        input_bytes_high: with so much unconfirmed by RabbitMQ, a client is not read from.
        fetch_bytes: how much may be asked for ahead on one link, judged by its last messages.
        fetch_max: messages that may be asked for ahead on one link.
        stop_s: how long a stop waits for what is under way; what RabbitMQ has not confirmed by then
            stays unanswered.
    """

    container_id: str = "busbridge"
    namespace_name: str = "sbemulatorns"
    message_bytes_max: int = 262_144
    authorization_s: float = 20.0
    send_credit: int = 1_000
    request_credit: int = 100
    output_bytes_high: int = 1_048_576
    input_bytes_high: int = 16_777_216
    fetch_bytes: int = 4_194_304
    fetch_max: int = 1_000
    stop_s: float = 1.4
    limits: Limits = field(default_factory=Limits)
