"""What tells a busbridge from Azure: its name, and the operations of `$management` of its own."""

from __future__ import annotations

from typing import Final

CONTAINER_ID: Final = "busbridge"
"""The container-id by which a bridge opens connections."""

HOLD: Final = "com.busbridge:hold"
RELEASE: Final = "com.busbridge:release"
LOCK_MESSAGES: Final = "com.busbridge:lock-messages"
RELEASE_MESSAGES: Final = "com.busbridge:release-messages"
MOVE_SCHEDULED_MESSAGES: Final = "com.busbridge:move-scheduled-messages"
IMPORT_SESSION_STATE: Final = "com.busbridge:import-session-state"
LAST_NUMBERS: Final = "com.busbridge:last-numbers"
SESSION_STATE_DIGESTS: Final = "com.busbridge:session-state-digests"
