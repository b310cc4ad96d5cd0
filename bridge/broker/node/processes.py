"""Child processes that must not outlive the bridge: end them with it, or at the next start."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Container
from pathlib import Path

from bridge.broker.errors import NodeFailed

_PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that a process gets when its parent dies."""

PROC_SELF = Path("/proc/self")
"""The process's own folder; where there is none, the node cannot look for its parent."""

ERL_AFLAGS = "ERL_AFLAGS"
"""The variable of arguments that Erlang puts before all others."""

_POLL_S = 0.1
_TRIES_MAX = 100


def die_with_parent(parent: int) -> None:
    """Have Linux end this process (in order, by SIGTERM) when its parent is gone.

    Args:
        parent: the parent's id, taken before the fork: one that is gone already sends no signal.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)


def ending_without_parent() -> str:
    """Return Erlang code for a child of this process: it ends its node when this process is gone.

    `die_with_parent` is not enough: Erlang catches SIGTERM from its first milliseconds on, and
    drops it until its kernel runs (0.3 s on an idle machine). So a node looks once for its parent,
    when it has started. The code has no spaces: RabbitMQ's script splits arguments at them.
    """
    parent = PROC_SELF.readlink()  # as /proc names it, which may be that of another PID namespace
    return (
        f'case(file:read_file("{PROC_SELF}/stat"))of{{ok,S}}->'
        'case(string:lexemes(lists:last(string:split(S,")",all)),"\\s"))of'
        f'[_,P|_]when(P=/=<<"{parent}">>)->init:stop();'
        f'(_)->(os:unsetenv("{ERL_AFLAGS}"))end;(_)->(ok)end.'
    )


async def end_leftovers(folder: Path, *, spared: Container[int] = ()) -> None:
    """End a node that an earlier process left behind in this folder (Linux only).

    Args:
        folder: the node's folder.
        spared: ids of processes to leave alone.

    Raises:
        NodeFailed: a process does not end within 10 s.
    """
    mark = f"RABBITMQ_MNESIA_BASE={folder / 'data'}".encode()
    for attempt in range(_TRIES_MAX):
        pids = [pid for pid in _pids_with(mark) if pid not in spared]
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM if attempt < _TRIES_MAX // 2 else signal.SIGKILL)
        await asyncio.sleep(_POLL_S)
    raise NodeFailed(text=f"an earlier RabbitMQ in {folder} does not end: processes {pids}")


def _pids_with(mark: bytes) -> list[int]:
    pids = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in path.read_bytes().split(b"\0"):
                pids.append(int(path.parent.name))
    return pids
