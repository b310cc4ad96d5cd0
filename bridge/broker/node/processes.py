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
