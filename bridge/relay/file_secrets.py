"""Where the connection strings of a file's sides are read from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


class FileSecrets:
    """Connection strings of the environment, and of files (`plan.side_tables.Secrets`).

    Args:
        folder: where relative paths begin: the folder of the relay's file.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str] = os.environ) -> None:
        self._folder = folder
        self._environment = environment

    def variable(self, name: str) -> str:
        """Return the text of an environment variable; ValueError if it has none."""
        text = self._environment.get(name, "").strip()
        if not text:
            raise ValueError(f"The environment variable {name} is not set, or is empty.")
        return text

    def file(self, path: str) -> str:
        """Return the text of a file; ValueError if it has none, or cannot be read."""
        try:
            text = (self._folder / path).read_text().strip()
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise ValueError(f"The file {path} cannot be read: {reason}.") from None
        if not text:
            raise ValueError(f"The file {path} is empty.")
        return text

    def path(self, path: str) -> str:
        """Return the whole path of a file that the relay's file names; ValueError if it is none."""
        found = self._folder / path
        if not found.is_file():
            raise ValueError(f"There is no file {path}.")
        return str(found)
