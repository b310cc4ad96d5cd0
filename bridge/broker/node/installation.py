"""The RabbitMQ that is installed or unpacked on this machine: its version and its programs."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from bridge.topology.capabilities import OLDEST_SERVED, Version

DEBIAN = Path("/usr/lib/rabbitmq/bin")
"""The folder of Debian's scripts. Debian's command on PATH is a wrapper that refuses all users but
root and rabbitmq; the script behind the wrapper does not."""

UNPACKED = Path(".busbridge/brokers/sid")
"""Where `make run` and `make test` keep the RabbitMQ that they have unpacked."""

COMPLETE = "complete"
"""The file in it that says that nothing is missing (docker/setup/rabbitmq writes it last)."""

_PLUGINS = ("plugins/rabbit-[0-9]*", "lib/rabbitmq_server-*/plugins/rabbit-[0-9]*")
"""RabbitMQ's core, which has its version in its name, from the folder above the scripts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A RabbitMQ that is installed.

    Attributes:
        scripts: the folder of `rabbitmq-server` and `rabbitmqctl`.
        path: the value of PATH with which the scripts find their Erlang.
    """

    scripts: Path
    path: str

    @classmethod
    def find(cls) -> Installation | None:
        """Return the newest RabbitMQ of this machine that the bridge runs on, or None.

        The one on PATH or Debian's is looked at, and the one that `make run` has unpacked. One
        whose version cannot be told counts as the oldest that will do.
        """
        found = [each for each in cls.all() if (each.version or OLDEST_SERVED) >= OLDEST_SERVED]
        return max(found, key=lambda each: each.version or OLDEST_SERVED, default=None)

    @classmethod
    def all(cls) -> list[Installation]:
        """Return every RabbitMQ of this machine, also those that are too old."""
        found = []
        on_path = shutil.which("rabbitmq-server")
        if on_path is not None or (DEBIAN / "rabbitmq-server").exists():
            scripts = Path(on_path).resolve().parent if on_path else DEBIAN
            if scripts.parent == DEBIAN.parent and (DEBIAN / "rabbitmq-server").exists():
                scripts = DEBIAN
            found.append(cls(scripts=scripts, path=_path()))
        if (UNPACKED / COMPLETE).exists():  # else its unpacking was interrupted
            found.append(cls.below(UNPACKED))
        return found

    @classmethod
    def below(cls, tree: Path) -> Installation:
        """Return what was unpacked into a folder (Erlang is below it), or RabbitMQ's generic build.

        Raises:
            FileNotFoundError: there is none.
        """
        for root in (tree / "root", tree):
            for scripts in sorted(root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin")):
                erlang = root / "usr/lib/erlang/bin"
                path = f"{erlang.absolute()}{os.pathsep}{_path()}"
                return cls(scripts=scripts.absolute(), path=path)
        if (tree / "sbin/rabbitmq-server").exists():
            return cls(scripts=(tree / "sbin").absolute(), path=_path())
        raise FileNotFoundError(f"no RabbitMQ below {tree}")

    @property
    def version_text(self) -> str:
        """RabbitMQ's version, such as `4.3.6`; "" if its folders do not say it."""
        for pattern in _PLUGINS:
            for core in self.scripts.parent.glob(pattern):
                return core.name.removeprefix("rabbit-").removesuffix(".ez")
        return ""

    @property
    def version(self) -> Version | None:
        """Major and minor number, or None if the folders do not say them."""
        match = re.match(r"(\d+)\.(\d+)", self.version_text)
        return None if match is None else (int(match[1]), int(match[2]))

    def epmd(self) -> Path | None:
        """Return Erlang's port mapper, from Erlang's folders or else from PATH, or None."""
        erl = shutil.which("erl", path=self.path)
        places = [Path(erl).parent, Path(erl).resolve().parent] if erl else []
        for place in places:
            for found in (place / "epmd", *sorted(place.parent.glob("erts-*/bin/epmd"))):
                if found.exists():
                    return found
        found_on_path = shutil.which("epmd", path=self.path)
        return Path(found_on_path) if found_on_path else None


def _path() -> str:
    """Return PATH with the system's folders, which services are often started without."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    folders += [each for each in ("/usr/local/bin", "/usr/bin", "/bin") if each not in folders]
    return os.pathsep.join(folders)
