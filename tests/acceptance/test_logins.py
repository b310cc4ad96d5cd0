"""Python and JavaScript log in by token: an issuer's keys, renewals, ends, and rights by claims."""

from __future__ import annotations

import sys

from tests.acceptance.driver import HERE, node_program
from tests.acceptance.issuer import Issuer
from tests.acceptance.logins import (  # noqa: F401
    Sdk,
    test_a_load_goes_on_when_tokens_are_renewed_and_the_key_has_changed,
    test_a_right_that_is_taken_away_ends_open_links,
    test_a_token_that_ends_ends_its_links,
    test_an_application_with_a_default_credential,
    test_an_application_without_a_key,
)


def python(_: Issuer) -> Sdk:
    """The client renews in the last tenth of a lifetime."""
    command = [sys.executable, str(HERE / "python" / "tokens.py")]
    return Sdk("python", command, told_s=20, holds_s=35)


def javascript(_: Issuer) -> Sdk:
    """The client renews two minutes before the end."""
    return Sdk("javascript", node_program("tokens.mjs"), told_s=128, holds_s=35)


LIBRARIES = ("python", "javascript")

SDKS = {"python": python, "javascript": javascript}

ENTITIES = {
    "python": {},
    "python-sessions": {"RequiresSession": True},
    "javascript": {},
    "javascript-sessions": {"RequiresSession": True},
}
