"""Packages of another Debian release, fetched and unpacked into a folder: nothing is installed.

No root and no Docker: apt resolves and fetches into a state of its own, from the mirror that this
machine uses.
"""

from __future__ import annotations

import getpass
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


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


def unpack(suite: str, package: str, folder: Path, is_needed: Callable[[str], object]) -> Path:
    """Unpack those packages of an installation that are needed; return the root of the tree."""
    root = folder / "root"
    began_s = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    root.mkdir(parents=True)
    apt = Suite(suite, folder / "apt")
    apt.run("update")
    apt.run("download", *filter(is_needed, apt.closure(package)))
    archives = list(apt.archives.glob("*.deb"))
    fetched_s = time.monotonic()
    for archive in archives:
        subprocess.run(["dpkg-deb", "--extract", archive, root], check=True)
    megabytes = sum(archive.stat().st_size for archive in archives) / 1e6
    print(
        f"setup: {len(archives)} packages, {megabytes:.0f} MB, and the lists are downloaded: "
        f"{fetched_s - began_s:.0f} s; they are unpacked: {time.monotonic() - fetched_s:.0f} s",
        file=sys.stderr,
    )
    shutil.rmtree(folder / "apt")
    return root
