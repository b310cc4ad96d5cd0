"""Whether somebody else receives from a queue of which this process keeps messages.

Before RabbitMQ 4.3 a kept message is out of reach of native consumers, and only its return, which
counts as a failed delivery, changes that. So it is returned when there is one. Pure: told what
RabbitMQ says from time to time.
"""

from __future__ import annotations


class Company:
    """What was seen of others while messages are kept and nobody asks for them here."""

    def __init__(self) -> None:
        self._others = 0
        self._ready: int | None = None

    def looked(self, others: int, ready: int, *, is_quiet: bool) -> bool:
        """Return whether somebody else receives.

        Args:
            others: consumers of the queue that are not this process's. One look is not enough:
                what was just settled or cancelled here may be among them.
            ready: how many messages wait in the queue.
            is_quiet: nothing came to this process since the last look, and nothing expires: then
                fewer messages are ready only when somebody got one (`basic.get` shows in no other
                way).
        """
        is_there = others > 0 and self._others > 0
        is_getting = is_quiet and self._ready is not None and ready < self._ready
        self._others, self._ready = others, ready
        return is_there or is_getting

    def forget(self) -> None:
        """Nothing is kept, or somebody asks for it."""
        self._others, self._ready = 0, None
