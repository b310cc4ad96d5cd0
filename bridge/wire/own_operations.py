"""The operations of `$management` that Azure does not have: the names of both ends."""

from __future__ import annotations

from typing import Final

HOLD: Final = "com.busbridge:hold"
RELEASE: Final = "com.busbridge:release"
LOCK_MESSAGES: Final = "com.busbridge:lock-messages"
RELEASE_MESSAGES: Final = "com.busbridge:release-messages"
MOVE_SCHEDULED_MESSAGES: Final = "com.busbridge:move-scheduled-messages"
