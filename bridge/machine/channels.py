"""How many consumers of an entity may share a channel."""

from __future__ import annotations

from enum import Enum

GETS_MAX = 2
"""Up to this many messages are got one by one, when the queue seems to have some.

Measured (4.3, one idle node): a get 0.17 ms; a window of one 0.33 ms and 0.25 ms for its cancel;
three gets 0.51 ms, a window of three 0.27 ms. 3.10 and 4.0 are alike.
"""


class Channels(Enum):
    """The channels that the windows and gets of one entity are on; each of these is a consumer.

    SHARED: all are on one channel. Since 4.3 on one node, and before 4.3 in a cluster (where
        RabbitMQ has few consumers at a time anyway).
    REUSED: each has a channel of its own, and the next one has that channel again when all that
        came on it is settled. Before 4.3 on one node.
    SPENT: each has a channel of its own, which ends when all that came on it is settled. Since
        4.3 in a cluster.

    `engine/apart.py` has the faults of RabbitMQ that ask for this.
    """

    SHARED = "shared"
    REUSED = "reused"
    SPENT = "spent"

    @staticmethod
    def of(*, can_return: bool, is_clustered: bool) -> Channels:
        """Return how it is done with this RabbitMQ.

        Args:
            can_return: `basic.nack(requeue)` does not count as a failed delivery (RabbitMQ 4.3).
            is_clustered: it has several nodes, or may have.
        """
        if can_return:
            return Channels.SPENT if is_clustered else Channels.SHARED
        return Channels.SHARED if is_clustered else Channels.REUSED

    @property
    def are_apart(self) -> bool:
        """Whether each consumer has one of its own: what comes on two comes in any order."""
        return self is not Channels.SHARED

    @property
    def gets_max(self) -> int:
        """How many messages may be got at a time, where gets are not all that there is.

        Two channels might bring theirs in any order; one that is spent for a get is wasted.
        """
        if self is Channels.SHARED:
            return GETS_MAX
        return 1 if self is Channels.REUSED else 0
