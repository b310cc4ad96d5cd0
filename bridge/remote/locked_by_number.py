"""What has become of messages that were to be locked by their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bridge.remote.delivery import RemoteDelivery


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedByNumber:
    """What has become of messages that were to be locked by their numbers.

    Attributes:
        deliveries: the locked ones, in the order of their numbers.
        unavailable: numbers of those that are there, and that no receiver can have now.
        unreached: numbers of those that stand behind more messages than the bridge may hold.
        missing: numbers that no message has.
    """

    deliveries: Sequence[RemoteDelivery]
    unavailable: Sequence[int]
    unreached: Sequence[int]
    missing: Sequence[int]
