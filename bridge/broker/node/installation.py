"""The RabbitMQ that is installed on this machine: the paths of its programs."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

DEBIAN = Path("/usr/lib/rabbitmq/bin")
"""The folder of Debian's scripts. Debian's command on PATH is a wrapper that refuses all users but
root and rabbitmq; the script behind the wrapper does not."""


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
        """Return the machine's RabbitMQ: the one on PATH, else Debian's; None without any."""
        found = shutil.which("rabbitmq-server")
        if found is None and not (DEBIAN / "rabbitmq-server").exists():
            return None
        scripts = Path(found).resolve().parent if found else DEBIAN
        if scripts.parent == DEBIAN.parent and (DEBIAN / "rabbitmq-server").exists():
            scripts = DEBIAN
        return cls(scripts=scripts, path=_path())

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
