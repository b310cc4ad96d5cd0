"""A call for deferred messages: they are locked until the caller has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from bridge.client.constants import ServiceBusReceiveMode
from bridge.client.core.call import Call
from bridge.message.received import Received

EndLocks = Callable[[str, list[Received]], Call[Any]]
"""Makes the call that completes or releases messages."""


def deferred_call(
    name: str,
    asked: tuple[Any, ...],
    timeout_s: float | None,
    mode: ServiceBusReceiveMode,
    end_locks: EndLocks,
) -> Call[Any]:
    """Return a call that receives deferred messages by number.

    Messages of a caller that has given up are released. Those that are to be deleted are completed
    when the caller has them.
    """
    call: Call[Any] = Call(name, asked, timeout_s, is_tried_again=False)
    call.undone_by = partial(end_locks, "release")
    if mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE:
        call.followed_by = partial(end_locks, "complete")
        call.read = _without_locks
    return call


def _without_locks(found: list[Received]) -> list[Received]:
    return [replace(each, lock_token=None, locked_until_ms=None) for each in found]
