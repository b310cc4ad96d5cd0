"""What an operation comes to: a future for one waiter, which costs little when it need not wait."""

from __future__ import annotations

import contextlib
from concurrent.futures import CancelledError, InvalidStateError
from threading import Lock
from typing import Any


class Outcome:
    """Pending until it has a result or an error, or was given up: whichever comes first."""

    __slots__ = ("_error", "_first", "_is_cancelled", "_is_done", "_ready", "_result")

    def __init__(self) -> None:
        self._first = Lock()
        self._ready = Lock()
        self._ready.acquire()
        self._is_done = self._is_cancelled = False
        self._result: Any = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        """Whether it is not pending."""
        return self._is_done

    def cancelled(self) -> bool:
        """Whether it was given up."""
        return self._is_cancelled

    def cancel(self) -> bool:
        """Give it up; return whether it was pending, or given up before."""
        if self._first.acquire(blocking=False):
            self._is_cancelled = self._is_done = True
            self._ready.release()
        return self._is_cancelled

    def set_result(self, result: Any) -> None:
        """Have its waiter go on.

        Raises:
            InvalidStateError: it is not pending.
        """
        self._take()
        self._result = result
        self._is_done = True
        self._ready.release()

    def set_exception(self, error: BaseException) -> None:
        """Have its waiter fail.

        Raises:
            InvalidStateError: it is not pending.
        """
        self._take()
        self._error = error
        self._is_done = True
        self._ready.release()

    def end(self, error: BaseException) -> None:
        """Have its waiter fail, though what set its result may have been interrupted in between."""
        if not self._is_done:
            self._first.acquire(blocking=False)
            self._error = error
            self._is_done = True
        with contextlib.suppress(RuntimeError):  # it was told before
            self._ready.release()

    def exception(self) -> BaseException | None:
        """Return its error, when it is done."""
        return self._error

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is not pending; return whether it is so in time. For one waiter."""
        return self._is_done or self._ready.acquire(timeout=-1 if timeout_s is None else timeout_s)

    def result(self) -> Any:
        """Return its result.

        Raises:
            CancelledError: it was given up.
            BaseException: its error.
        """
        if self._is_cancelled:
            raise CancelledError
        if self._error is not None:
            raise self._error
        return self._result

    def _take(self) -> None:
        if not self._first.acquire(blocking=False):
            raise InvalidStateError
