"""What has become of the messages that a command has received."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class TakingAccount:
    """Counts of messages.

    Attributes:
        looked_at: received, each once.
        taken: confirmed by the target, or to be completed at once where nothing is sent.
        completed: removed from the source; the source has confirmed it.
        not_completed: to be removed, and it is not sure that they were: they come again, perhaps.
        given_back: left as they were, uncounted.
        left_locked: left in the source, where their locks end by themselves: that counts as a
            delivery.
        in_doubt: of those that were left in the source: a copy may be at the target.
        refused: number and reason of each that could not be taken.
    """

    looked_at: int = 0
    taken: int = 0
    completed: int = 0
    not_completed: int = 0
    given_back: int = 0
    left_locked: int = 0
    in_doubt: int = 0
    refused: list[tuple[int, str]] = field(default_factory=list)

    def gave_back(self, *, is_sure: bool) -> None:
        """Note that a message was given back; not `is_sure`: that its lock ends by itself."""
        if is_sure:
            self.given_back += 1
        else:
            self.left_locked += 1
