"""Unpack Debian 13's Go into a folder, for the Go SDK's tests where Go is missing or too old.

    python3 docker/setup/golang.py FOLDER

Its programs are linked statically, so they run on any release; FOLDER/bin is what PATH needs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from debian import unpack

if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    folder = Path(sys.argv[1]).resolve()
    root = unpack("trixie", "golang-go", folder, lambda name: name.startswith("golang-"))
    (programs,) = root.glob("usr/lib/go-*/bin")
    (folder / "bin").symlink_to(programs)
    print(programs)
