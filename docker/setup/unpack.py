"""Unpack the RabbitMQ of another Debian release into a folder, to run beside this machine's own.

    python3 docker/setup/unpack.py trixie|sid FOLDER

Programs built for a newer C library do not start on an older system, so the release's own C library
is unpacked too, and each program of Erlang's run-time is replaced by a script that starts it
through that library's loader (LD_LIBRARY_PATH would reach the shells that Erlang starts, too). The
scripts hold absolute paths: a tree that was moved has to be unpacked anew.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from debian import unpack

# RabbitMQ, Erlang, and the libraries that programs of Erlang's run-time are linked to or open.
NEEDED = re.compile(
    r"rabbitmq-server|erlang-[a-z0-9-]+|libc6|libgcc-s1|libstdc\+\+6|zlib1g|libtinfo6|libncurses6|"
    r"libssl3(t64)?|openssl-provider-legacy|libsystemd0|libsctp1|libzstd1|liblzma5|liblz4-1|"
    r"libgcrypt20|libgpg-error0|libcap2"
)


def _first(root: Path, *patterns: str) -> Path:
    for pattern in patterns:
        for found in sorted(root.glob(pattern)):
            return found.resolve()
    raise SystemExit(f"unpack: nothing below {root} matches {' or '.join(patterns)}.")


def _is_program(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _wrap_programs(root: Path) -> None:
    loader = _first(
        root, "usr/lib64/ld-linux-*.so.2", "lib64/ld-linux-*.so.2", "usr/lib/ld-linux-*.so.1",
        "usr/lib/*-linux-gnu/ld-linux-*.so.*", "lib/*-linux-gnu/ld-linux-*.so.*",
    )  # fmt: skip
    folders = [*root.glob("usr/lib/*-linux-gnu"), *root.glob("lib/*-linux-gnu")]
    libraries = ":".join(str(folder) for folder in folders)
    erts = _first(root, "usr/lib/erlang/erts-*")
    # The run-time looks for its parts beside the program that really runs: all move together.
    (erts / "real").mkdir()
    programs = [*erts.glob("bin/*"), *root.glob("usr/lib/erlang/lib/*/priv/bin/*")]
    for program in filter(_is_program, programs):
        own = erts / "real" / program.name
        real = own if program.parent == erts / "bin" else program.with_name(program.name + ".real")
        program.rename(real)
        program.write_text(
            f'#!/bin/sh\nexec {loader} --argv0 "{program}" --library-path {libraries} {real} "$@"\n'
        )
        program.chmod(0o755)
    for script in (root / "usr/lib/erlang/bin/erl", erts / "bin/erl", erts / "bin/start"):
        if script.exists():
            text = script.read_text()
            script.write_text(
                re.sub(r"=/usr/lib/erlang$", f"={root}/usr/lib/erlang", text, flags=re.MULTILINE)
            )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    tree = unpack(sys.argv[1], "rabbitmq-server", Path(sys.argv[2]).resolve(), NEEDED.fullmatch)
    _wrap_programs(tree)
    print(tree)
