"""Who uses a TCP port of this machine, as far as the system tells (Linux)."""

from __future__ import annotations

import contextlib
import pwd
from pathlib import Path

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENS = "0A"


def holder_of(port: int) -> str:
    """Return who uses a port, such as `beam.smp (process 4711)`.

    Of another user's process the user alone can be told: `a process of root`. When the system says
    nothing, "another process".
    """
    found = _sockets(port)
    for inode in found:
        pid = _owner(inode)
        if pid is not None:
            return f"{_program(pid)} (process {pid})"
    for uid in found.values():
        with contextlib.suppress(KeyError):
            return f"a process of {pwd.getpwuid(uid).pw_name}"
    return "another process"


def _sockets(port: int) -> dict[str, int]:
    """Return inode and user id of the sockets that are bound to a port, listening ones first."""
    found: list[tuple[bool, str, int]] = []
    for table in _TABLES:
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                _, local, _, state, _, _, _, uid, _, inode, *_ = line.split()
                if int(local.rpartition(":")[2], 16) == port and inode != "0":
                    found.append((state != _LISTENS, inode, int(uid)))
    return {inode: uid for _, inode, uid in sorted(found)}


def _owner(inode: str) -> int | None:
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if str(link.readlink()) == f"socket:[{inode}]":
                return int(link.parts[2])
    return None


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "a process that has just ended"
