"""A folder in memory, for the data of a RabbitMQ that no test kills.

Nearly every test makes some twenty queues, streams and exchanges and deletes them again: on a disk
that takes twice as much of the system's time, and all that runs beside it waits for the disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")

FREE_BYTES_MIN = 4 << 30
"""Room for the nodes of all workers; they hold some 100 MB each."""

_PREFIX = "busbridge-tests-"


@contextmanager
def folder_in_memory(otherwise: Path, memory: Path = MEMORY) -> Iterator[Path]:
    """Give an empty folder that is removed at the end, or `otherwise` where no memory is free.

    A process that is killed leaves its own: the next one removes it.
    """
    if not memory.is_dir() or shutil.disk_usage(memory).free < FREE_BYTES_MIN:
        yield otherwise
        return
    _remove_leftovers(memory)
    made = Path(tempfile.mkdtemp(prefix="new-", dir=memory))
    lock = os.open(made, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # It has the name of what may be a leftover once it is locked.
        made = made.rename(memory / f"{_PREFIX}{made.name}")
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(lock)


def _remove_leftovers(memory: Path) -> None:
    for each in memory.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # locked, another user's, or removed at this moment
            lock = os.open(each, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(each)
            finally:
                os.close(lock)
