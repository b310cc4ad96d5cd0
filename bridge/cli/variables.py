"""Environment variables that look like the bridge's and are none."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping

from bridge.cli.options import OPTIONS, PREFIX
from bridge.commands.target import VARIABLE

_TESTS = re.compile(r"TEST_\w+|PARITY_\w+|FAILPOINT|UPDATE_GOLDEN")
"""Variables of the project's own tests, behind the prefix."""


def unknown_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that look like the bridge's and are none.

    Each with the variable that has the most similar name, "" if none is similar.
    """
    known = [option.variable.removeprefix(PREFIX) for option in OPTIONS]
    known.append(VARIABLE.removeprefix(PREFIX))
    unknown = {}
    for name in sorted(environment):
        own = name.removeprefix(PREFIX)
        if name != own and own not in known and not _TESTS.fullmatch(own):
            similar = difflib.get_close_matches(own, known, 1)
            unknown[name] = PREFIX + similar[0] if similar else ""
    return unknown
