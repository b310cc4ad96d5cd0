"""Structured logs: one line for each fact, `time level event key=value ...`, without secrets."""

from __future__ import annotations

import logging
import re
import sys
import time

_SECRET = re.compile(
    r"(SharedAccessKey=|sig=|password[=:]\s*)[^\s;&@]+"
    # Of a URL the password, which ends with the last @; what is no number can be no port.
    r"|(://[^\[:/@\s]*:)(?:\S+(?=@)|(?!\d{1,5}\b)[^\s;&@]+)",
    re.IGNORECASE,
)

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")

TEXT_MAX = 4_096
"""Maximum length of a fact's text: some texts contain names and texts of anybody."""


class LineFormatter(logging.Formatter):
    """A formatter of one-line records, with keys and passwords masked.

    Control characters are escaped: no text of a client begins a line. A traceback's lines are
    indented.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        text = _safe(record.getMessage())
        if record.exc_info:
            traceback = self.formatException(record.exc_info).splitlines()
            text += "".join(f"\n  {_safe(row)}" for row in traceback)
        line = f"{moment}.{int(record.msecs):03d}Z {record.levelname.lower():7} {text}"
        return _SECRET.sub(lambda found: (found[1] or found[2]) + "***", line)


def _safe(text: str) -> str:
    if len(text) > TEXT_MAX:
        text = f"{text[:TEXT_MAX]}... ({len(text)} characters)"
    return _CONTROL.sub(_escaped, text)


def _escaped(control: re.Match[str]) -> str:
    return repr(control[0])[1:-1]


class _StandardError(logging.Handler):
    """Writes lines to what is standard error then: a table at a terminal stands in for it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


def log_to_standard_error() -> None:
    """Write what is logged to standard error, one line for each fact."""
    handler = _StandardError()
    handler.setFormatter(LineFormatter())
    logging.getLogger().handlers[:] = [handler]
