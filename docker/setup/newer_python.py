"""Unpack the Python of another Debian release into a folder, for the library's tests on newer ones.

    python3 docker/setup/newer_python.py trixie|sid 3.13|3.14 FOLDER

FOLDER/root/usr/bin/python3.13 is the program. It is built for a newer C library, which is unpacked
beside it, so a script starts it through that library's loader: under the name it was called by,
from which Python finds its own folder, or that of a virtual environment.
"""

from __future__ import annotations

import sys
from pathlib import Path

from debian import unpack


def wrap(root: Path, name: str) -> Path:
    """Put a script where the program is; return its path."""
    (loader,) = {each.resolve() for each in root.glob("usr/lib*/ld-linux-*.so.*")}
    libraries = ":".join(map(str, root.glob("usr/lib/*-linux-gnu")))
    program = root / "usr/bin" / name
    real = program.rename(program.with_name(f"{name}.real"))
    program.write_text(
        f'#!/bin/sh\nexec {loader} --argv0 "$0" --library-path {libraries} {real} "$@"\n'
    )
    program.chmod(0o755)
    return program


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    suite, version, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3]).resolve()
    tree = unpack(suite, f"python{version}-venv", folder, lambda name: name != "libc-bin")
    print(wrap(tree, f"python{version}"))
