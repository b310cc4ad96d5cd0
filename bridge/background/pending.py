"""What a process waits for, as text: its tasks and its threads, each with the place in the code."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[2]

NAMED_MAX = 20
"""Maximum number of tasks that are named; there may be thousands."""


def of_tasks(tasks: Iterable[asyncio.Task[Any]]) -> str:
    """Return the names of tasks that have not ended, each with where it waits."""
    found = sorted(f"{task.get_name()!r} in {_place(task)}" for task in tasks if not task.done())
    more = [f"{len(found) - NAMED_MAX} more"] if found[NAMED_MAX:] else []
    return ", ".join([*found[:NAMED_MAX], *more])


def of_threads() -> str:
    """Return the names of all threads but the calling one, each with where it is."""
    names = {each.ident: each.name for each in threading.enumerate()}
    own = threading.get_ident()
    return ", ".join(
        f"{names.get(number, number)!r} in {_text(frame)}"
        for number, frame in sys._current_frames().items()
        if number != own
    )


def _place(task: asyncio.Task[Any]) -> str:
    """Return the innermost place of a task: the project's own, if there is one."""
    frames = list(_frames(task.get_coro()))
    ours = [each for each in frames if _is_ours(each)]
    return _text((ours or frames)[-1]) if frames else "an unknown place"


def _frames(awaited: Any) -> Iterator[FrameType]:
    """Yield the frames of a coroutine and of what it awaits, the outermost first."""
    while awaited is not None:
        kind = next(
            (each for each in ("cr", "gi", "ag") if hasattr(awaited, f"{each}_frame")), None
        )
        if kind is None:
            return
        if (frame := getattr(awaited, f"{kind}_frame")) is not None:
            yield frame
        awaited = getattr(awaited, "gi_yieldfrom" if kind == "gi" else f"{kind}_await", None)


def _is_ours(frame: FrameType) -> bool:
    return Path(frame.f_code.co_filename).is_relative_to(ROOT / "bridge")


def _text(frame: FrameType) -> str:
    path = Path(frame.f_code.co_filename)
    where = path.relative_to(ROOT) if _is_ours(frame) else Path(*path.parts[-2:])
    return f"{where}:{frame.f_lineno} {frame.f_code.co_name}"
