"""Java, Go and .NET log in by token: what test_logins.py has of Python and JavaScript."""

from __future__ import annotations

import pytest

from tests.acceptance.driver import dotnet_program, go_program, java_program, java_trust_store
from tests.acceptance.issuer import Issuer
from tests.acceptance.logins import (  # noqa: F401
    Sdk,
    test_a_load_goes_on_when_tokens_are_renewed_and_the_key_has_changed,
    test_a_right_that_is_taken_away_ends_open_links,
    test_a_token_that_ends_ends_its_links,
    test_an_application_with_a_default_credential,
    test_an_application_without_a_key,
)

pytestmark = pytest.mark.timeout(900)


def java(issuer: Issuer) -> Sdk:
    """The client renews in the last tenth of a lifetime."""
    trusting = java_trust_store(issuer.ca, issuer.ca.parent)
    return Sdk("java", java_program("Tokens", *trusting), told_s=20, holds_s=35)


def go(_: Issuer) -> Sdk:
    """The client renews ten minutes before the end, but not before two minutes are over.

    By then the token must have less than five minutes left: azidentity gives it again otherwise.
    """
    return Sdk("go", go_program("tokens", "./tokens"), told_s=400, holds_s=150)


def dotnet(_: Issuer) -> Sdk:
    """The client renews seven minutes before the end, but not before three minutes are over."""
    return Sdk("dotnet", dotnet_program("tokens"), told_s=450, holds_s=230)


LIBRARIES = ("java", "go")
"""Those with azure-identity; .NET's program has a credential of its own."""

SDKS = {"java": java, "go": go, "dotnet": dotnet}

ENTITIES = {
    name + suffix: {"RequiresSession": suffix == "-sessions"}
    for name in SDKS
    for suffix in ("", "-load", "-sessions")
}
