"""The resident memory of a process."""

from __future__ import annotations

from pathlib import Path


def memory_mb(process_id: int | str = "self") -> float:
    """Return it in MB; without an id, this process's."""
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))
