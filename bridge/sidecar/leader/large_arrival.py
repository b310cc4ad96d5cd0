"""An arrival that is a large envelope, as a leader carries it out: step by step."""

from __future__ import annotations

from bridge.broker.connection.delivery import Delivery
from bridge.machine.inbox import arrival
from bridge.machine.inbox.arrival import RefusedItem, SendCommand
from bridge.machine.inbox.large_envelope import LargeEnvelope, large_envelope
from bridge.sidecar.leader.unacked_arrivals import UnackedArrival
from bridge.wire.envelope import MalformedEnvelope


class LargeArrival:
    """A delivery of the inbox with many messages.

    Attributes:
        unacked: its place among the unacked arrivals, from its first part on.
    """

    def __init__(self, delivery: Delivery, envelope: LargeEnvelope) -> None:
        self.delivery = delivery
        self.unacked: UnackedArrival | None = None
        self._again: SendCommand | RefusedItem | None = None
        self._envelope = envelope

    @property
    def is_over(self) -> bool:
        """Whether `step` has returned all parts."""
        return self._envelope.is_over

    def put_back(self, command: SendCommand | RefusedItem) -> None:
        """Have the next `step` return a command again, which could not be carried out yet."""
        self._again = command

    def step(self) -> SendCommand | RefusedItem | None:
        """Return the command of the next part; `None`: more of the envelope was checked first.

        The dead letter of an envelope that is not whole comes before any part.
        """
        if self._again is not None:
            command, self._again = self._again, None
            return command
        if self._envelope.is_checked:
            return self._envelope.part()
        try:
            self._envelope.check()
        except MalformedEnvelope as error:
            description = f"The envelope cannot be read: {error}"
            properties, body = self.delivery.properties, self.delivery.body
            return arrival.refuse(properties, body, arrival.MALFORMED_ENVELOPE, description)
        return None


def large_arrival(delivery: Delivery, *, folds_keys: bool) -> LargeArrival | None:
    """Return an arrival that is a large envelope; `None`: it is something else.

    Args:
        folds_keys: see `machine.inbox.arrival.read`.
    """
    found = large_envelope(delivery.properties, delivery.body, folds_keys=folds_keys)
    return None if found is None else LargeArrival(delivery, found)
