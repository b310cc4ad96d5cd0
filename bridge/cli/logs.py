"""Structured logs: one line a fact, `time level event key=value ...`, no secret in any."""

from __future__ import annotations

import logging
import re
import sys
import time

_SECRET = re.compile(
    r"(SharedAccessKey=|sig=|://[^:/@\s]*:|password[=:]\s*)[^\s;&@]+", re.IGNORECASE
)


class LineFormatter(logging.Formatter):
    """Formats a record as one line; whatever looks like a key or a password is blacked out."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        line = f"{moment}.{int(record.msecs):03d}Z {record.levelname.lower():7} {text}"
        return _SECRET.sub(lambda found: found[1] + "***", line)


def start_logging(level: str) -> None:
    """Send the logs of the bridge to standard error from `level` upwards."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("aiohttp.access").setLevel("WARNING")
    logging.getLogger("asyncio").setLevel("WARNING")
