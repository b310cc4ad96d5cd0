"""Unpack the RabbitMQ of another Debian release into a folder, to run beside this machine's own.

    python3 tests/brokers/unpack.py bookworm|trixie|sid FOLDER

No root, no Docker, nothing installed: apt resolves and fetches into a state of its own, from the
mirror that this machine uses. Programs built for a newer C library do not start on an older system,
so the release's own C library is unpacked too, and each program of Erlang's run-time is replaced by
a script that starts it through that library's loader (LD_LIBRARY_PATH would reach the shells that
Erlang starts, too). The scripts hold absolute paths: a tree that was moved has to be unpacked anew.
"""

from __future__ import annotations

import getpass
import re
import shutil
import subprocess
import sys
from pathlib import Path

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

# RabbitMQ, Erlang, and the libraries that programs of Erlang's run-time are linked to or open.
NEEDED = re.compile(
    r"rabbitmq-server|erlang-[a-z0-9-]+|libc6|libgcc-s1|libstdc\+\+6|zlib1g|libtinfo6|libncurses6|"
    r"libssl3(t64)?|openssl-provider-legacy|libsystemd0|libsctp1|libzstd1|liblzma5|liblz4-1|"
    r"libgcrypt20|libgpg-error0|libcap2"
)


class Suite:
    """apt for one release of Debian, with configuration, lists and downloads below one folder."""

    def __init__(self, name: str, folder: Path) -> None:
        self.archives = folder / "archives"
        for part in ("etc/preferences.d", "etc/apt.conf.d", "lists/partial", "archives/partial"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        sources = folder / "etc/sources.list"
        sources.write_text(f"deb [signed-by={KEYRING}] {_mirror()} {name} main\n")
        settings = {
            "Dir::Etc": folder / "etc",
            "Dir::Etc::sourcelist": sources,
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::State": folder,
            "Dir::State::lists": folder / "lists",
            "Dir::State::status": folder / "status",
            "Dir::Cache": folder,
            "Dir::Cache::archives": self.archives,
            "Debug::NoLocking": "true",
            "APT::Sandbox::User": getpass.getuser(),
            "APT::Install-Recommends": "false",
            "Acquire::Languages": "none",
            "Acquire::Retries": "3",
        }
        self._options = [
            part for key, value in settings.items() for part in ("-o", f"{key}={value}")
        ]

    def run(self, *arguments: str) -> str:
        """Run apt-get and return what it prints."""
        return subprocess.run(
            ["apt-get", *self._options, "-qq", *arguments],
            cwd=self.archives,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout

    def closure(self, package: str) -> list[str]:
        """Name the packages that an installation of `package` on an empty machine would fetch."""
        plan = self.run("--yes", "--print-uris", "install", package)
        return sorted({line.split()[1].split("_")[0] for line in plan.splitlines() if line})


def _mirror() -> str:
    targets = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN)", "Created-By: Packages"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    for line in targets.splitlines():
        address, _, origin = line.partition(" ")
        if origin == "Debian" and not address.rstrip("/").endswith("-security"):
            return address
    raise SystemExit("unpack: this machine's apt has no list of a Debian mirror (apt-get update).")


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


def unpack(suite: str, folder: Path) -> Path:
    """Fetch and unpack RabbitMQ of a release; return the root of the tree."""
    root = folder / "root"
    shutil.rmtree(folder, ignore_errors=True)
    root.mkdir(parents=True)
    apt = Suite(suite, folder / "apt")
    apt.run("update")
    packages = [name for name in apt.closure("rabbitmq-server") if NEEDED.fullmatch(name)]
    apt.run("download", *packages)
    for archive in apt.archives.glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", archive, root], check=True)
    _wrap_programs(root)
    shutil.rmtree(folder / "apt")
    return root


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    print(unpack(sys.argv[1], Path(sys.argv[2]).resolve()))
