"""A future for one waiter, cheap when the result is there before the wait."""

from __future__ import annotations

import contextlib
from concurrent.futures import CancelledError, InvalidStateError
from threading import Lock
from typing import Any


class CallOutcome:
    """A future: pending until a result, an error or a cancel, whichever comes first."""

    __slots__ = ("_error", "_first", "_is_cancelled", "_is_done", "_ready", "_result")

    def __init__(self) -> None:
        self._first = Lock()
        self._ready = Lock()
        self._ready.acquire()
        self._is_done = self._is_cancelled = False
        self._result: Any = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        """Return whether the future is over."""
        return self._is_done

    def cancelled(self) -> bool:
        """Return whether the waiter gave up."""
        return self._is_cancelled

    def cancel(self) -> bool:
        """Give up; return whether the future was pending, or given up before."""
        if self._first.acquire(blocking=False):
            self._is_cancelled = self._is_done = True
            self._ready.release()
        return self._is_cancelled

    def set_result(self, result: Any) -> None:
        """Set the result.

        Raises:
            InvalidStateError: it is not pending.
        """
        self._take()
        self._result = result
        self._is_done = True
        self._ready.release()

    def set_exception(self, error: BaseException) -> None:
        """Set the exception.

        Raises:
            InvalidStateError: it is not pending.
        """
        self._take()
        self._error = error
        self._is_done = True
        self._ready.release()

    def end(self, error: BaseException) -> None:
        """Set an exception even if setting a result was interrupted in the middle."""
        if not self._is_done:
            self._first.acquire(blocking=False)
            self._error = error
            self._is_done = True
        with contextlib.suppress(RuntimeError):  # released before
            self._ready.release()

    def exception(self) -> BaseException | None:
        """Return the exception of a finished future."""
        return self._error

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; return whether that came in time. For one waiter."""
        return self._is_done or self._ready.acquire(timeout=-1 if timeout_s is None else timeout_s)

    def result(self) -> Any:
        """Return the result.

        Raises:
            CancelledError: the waiter gave up.
            BaseException: the set exception.
        """
        if self._is_cancelled:
            raise CancelledError
        if self._error is not None:
            raise self._error
        return self._result

    def _take(self) -> None:
        if not self._first.acquire(blocking=False):
            raise InvalidStateError
