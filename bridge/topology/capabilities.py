"""The capabilities of RabbitMQ versions that affect the resources of an entity.

Measured on 3.10.8, 4.0.5 and 4.3.6. A version in between counts as the older one, unless RabbitMQ's
release notes name the version that brought a feature.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Version = tuple[int, int]

OLDEST: Version = (3, 10)
"""The oldest version that policies are written for: its quorum queues dead-letter at least once."""

OLDEST_SERVED: Version = (4, 0)
"""The oldest version that the bridge runs on."""

NEWEST_KNOWN: Version = (4, 3)

TTL_MAX_MS = 315_360_000_000
"""10 years of 365 days: RabbitMQ's longest `message-ttl`, `expiration` and `expires`.

An argument above it is refused. A policy above it is accepted, and one that holds Service Bus's
default TTL breaks a quorum queue for good on 3.10 and 4.0.
"""

DELIVERY_LIMIT_MAX = 2_147_483_647
"""In effect no delivery limit: every version accepts it, and a returned message keeps its place.

With -1, 3.10 drops returned messages, and 4.0 moves them to the tail. Without any limit, 3.10 moves
them to the tail, and 4.x gives a message up after 20 returns.
"""

PATTERN_BYTES_MAX = 1_024
"""The longest policy pattern that 4.3 accepts. It holds for every version, so that no policy
becomes invalid by an upgrade."""

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.\d+)?(?:[-+.].*)?")


class UnsupportedVersion(ValueError):
    """The version of RabbitMQ is too old, or no version at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The capabilities of one version; made by `of`.

    Attributes:
        version: major and minor number.
        message_bytes_max: `max_message_size`, in bytes: the default, where the node was not asked.
        delivery_limit_default: deliveries after which a quorum queue without a limit drops or
            dead-letters a message; None means never.
        has_unlimited_policy: a policy may have `delivery-limit: -1`.
        has_queue_consumer_timeout: a queue may have a consumer timeout of its own; otherwise only
            the whole node has one (30 minutes by default).
        has_exact_consumer_timeout: the timeout holds to the millisecond, and for each delivery.
        has_delayed_retry: a quorum queue can delay a returned message.
        has_predeclared_shovels: a shovel can wait for its queue instead of declaring one.
        nack_counts: `basic.nack(requeue)` counts as a failed delivery.
        compacts_logs: a quorum queue's log holds little more than the queue's messages; otherwise
            all messages that have come since the oldest one.
    """

    version: Version
    message_bytes_max: int
    delivery_limit_default: int | None
    has_unlimited_policy: bool
    has_queue_consumer_timeout: bool
    has_exact_consumer_timeout: bool
    has_delayed_retry: bool
    has_predeclared_shovels: bool
    nack_counts: bool
    compacts_logs: bool

    def __str__(self) -> str:
        return f"RabbitMQ {self.version[0]}.{self.version[1]}"

    @classmethod
    def of(cls, version: str) -> Capabilities:
        """Return the capabilities of a version such as `3.10`, `4.0.5` or `4.3.0-rc.1`.

        Raises:
            UnsupportedVersion: the version is older than 3.10, or the text is no version.
        """
        number = _number(version)
        if number < OLDEST:
            raise UnsupportedVersion(
                f"RabbitMQ {version} is older than 3.10, the oldest on which a quorum queue "
                "dead-letters at least once"
            )
        is_4 = number >= (4, 0)
        is_43 = number >= (4, 3)
        return cls(
            version=number,
            message_bytes_max=16_777_216 if is_4 else 134_217_728,
            delivery_limit_default=20 if is_4 else None,
            has_unlimited_policy=is_4,
            has_queue_consumer_timeout=number >= (3, 12),
            has_exact_consumer_timeout=is_43,
            has_delayed_retry=is_43,
            has_predeclared_shovels=is_4,
            nack_counts=not is_43,
            compacts_logs=is_43,
        )

    @classmethod
    def served(cls, version: str) -> Capabilities:
        """Return the capabilities of a version that the bridge runs on.

        Raises:
            UnsupportedVersion: the version is older than 4.0, or the text is no version.
        """
        if _number(version) < OLDEST_SERVED:
            raise UnsupportedVersion(
                f"RabbitMQ {version} is too old: the bridge and its clients need 4.0 or newer "
                "(4.3 is the fast one)"
            )
        return cls.of(version)


def _number(version: str) -> Version:
    match = _VERSION.fullmatch(version.strip())
    if match is None:
        raise UnsupportedVersion(f"{version!r} is not a RabbitMQ version such as 4.0 or 4.3.6")
    return int(match[1]), int(match[2])
