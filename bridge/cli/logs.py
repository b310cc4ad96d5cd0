"""The logs of the processes that serve."""

from __future__ import annotations

import logging

from bridge.cli.variables import unknown_variables
from bridge.commands.log_lines import log_to_standard_error

_log = logging.getLogger("busbridge.serve")


def start_logging(level: str) -> None:
    """Send the logs of the bridge to standard error from `level` upwards.

    The first lines name the environment variables that look like the bridge's and are none.
    """
    log_to_standard_error()
    logging.getLogger().setLevel(level.upper())
    logging.getLogger("aiohttp.access").setLevel("WARNING")
    logging.getLogger("asyncio").setLevel("WARNING")
    for name, similar in unknown_variables().items():
        meant = f" similar={similar}" if similar else ""
        _log.warning("settings.unknown_variable name=%s%s", name, meant)
