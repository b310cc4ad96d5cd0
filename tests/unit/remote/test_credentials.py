"""Credentials for remote namespaces: tokens that the bridge's own verifier takes."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.model.access import verify_token
from bridge.model.access_rules import AccessRuleSet
from bridge.model.entity import AuthorizationRule, Right
from bridge.remote.credentials import (
    JWT_KIND,
    SAS_KIND,
    EntraToken,
    SharedKey,
    SharedSignature,
    credential_in,
)
from bridge.remote.errors import RemoteUnauthorized

NOW_S = 1_800_000_000.5
AUDIENCE = "sb://localhost:5671/a b/ü"
RULES = AccessRuleSet(
    namespace=(AuthorizationRule(name="r & d", primary_key="s=c", rights=frozenset(Right)),)
)


async def test_a_key_makes_tokens_that_its_rule_has_signed() -> None:
    """For an hour, and in the type that Azure names."""
    token = await SharedKey("r & d", "s=c").token(AUDIENCE, NOW_S)

    assert verify_token(token.text, RULES, NOW_S).grants
    assert token.expires_s == int(NOW_S) + 3_600
    assert token.kind == SAS_KIND
    assert token.is_renewable


async def test_a_signature_is_passed_on_until_its_end() -> None:
    """Whatever the audience; it says that it cannot be renewed."""
    text = SharedKey("r & d", "s=c").sign(AUDIENCE, int(NOW_S) + 60)
    given = SharedSignature(text)

    token = await given.token("sb://other/", NOW_S)

    assert (token.text, token.expires_s) == (text, int(NOW_S) + 60)
    assert not token.is_renewable
    with pytest.raises(RemoteUnauthorized, match="has ended"):
        await given.token(AUDIENCE, NOW_S + 60)


async def test_a_malformed_signature_is_refused_without_being_shown() -> None:
    """In Azure's words."""
    with pytest.raises(RemoteUnauthorized, match="MalformedToken") as caught:
        await SharedSignature("SharedAccessSignature secret").token(AUDIENCE, NOW_S)
    assert "secret" not in str(caught.value)


class Issued:
    """What azure-identity returns."""

    token = "header.claims.signature"
    expires_on = 1_900_000_000


class Credential:
    """A credential of azure-identity's shape."""

    def __init__(self, error: Exception | None = None) -> None:
        self.scopes: list[str] = []
        self._error = error

    def get_token(self, *scopes: str, **more: Any) -> Issued:
        """Return a token for a scope."""
        self.scopes += scopes
        if self._error is not None:
            raise self._error
        return Issued()


class AsyncCredential(Credential):
    """The same of azure.identity.aio's."""

    async def get_token(self, *scopes: str, **more: Any) -> Issued:  # type: ignore[override]
        """Return a token for a scope."""
        return super().get_token(*scopes, **more)


@pytest.mark.parametrize("kind", [Credential, AsyncCredential])
async def test_anything_with_get_token_is_a_credential(kind: type[Credential]) -> None:
    """Sync or async; it is asked for Service Bus's scope."""
    given = kind()

    token = await EntraToken(given).token(AUDIENCE, NOW_S)

    assert given.scopes == ["https://servicebus.azure.net/.default"]
    assert (token.text, token.kind, token.expires_s) == (Issued.token, JWT_KIND, 1_900_000_000)


async def test_a_credential_that_fails_is_named_as_such() -> None:
    """As an error of this client's, with the credential's words."""
    with pytest.raises(RemoteUnauthorized, match="az login"):
        await EntraToken(Credential(ValueError("run az login"))).token(AUDIENCE, NOW_S)


def test_no_repr_shows_a_secret() -> None:
    """Of none of them."""
    for each in (SharedKey("n", "secret"), SharedSignature("secret"), EntraToken("secret")):
        assert "secret" not in repr(each)


def test_the_credential_in_a_connection_string() -> None:
    """A key, a signature, or none."""
    base = "Endpoint=sb://localhost/;"

    assert credential_in(base + "SharedAccessKeyName=n;SharedAccessKey=k=") == SharedKey("n", "k=")
    assert credential_in(base + "SharedAccessSignature=S sr=x") == SharedSignature("S sr=x")
    assert credential_in(base) is None
    assert credential_in("localhost") is None
