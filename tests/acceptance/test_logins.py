"""Python and JavaScript log in by token: an issuer's keys, renewals, ends, and rights by claims."""

from __future__ import annotations

import sys

import pytest

from tests.acceptance.driver import HERE, node_program
from tests.acceptance.issuer import TENANT, Issuer
from tests.acceptance.logins import (  # noqa: F401
    Logins,
    Sdk,
    failures,
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


@pytest.mark.parametrize(
    "name",
    [f"https://sts.windows.net/{TENANT}/", f"https://login.microsoftonline.com/{TENANT}/v2.0"],
)
def test_a_token_as_entra_writes_it(logins: Logins, name: str) -> None:
    """A tenant of the rules file has both of its issuers, of versions 1.0 and 2.0."""
    (chosen,) = [each for each in logins.sdks if each.name == "python"]
    logins.issuer.give("python", 3600, issuer=name)
    try:
        assert not failures(logins.run(chosen))
    finally:
        logins.issuer.give("python", 3600)
