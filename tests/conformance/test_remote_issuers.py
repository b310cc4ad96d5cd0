"""The remote client with tokens of an issuer, from anything with `get_token`, renewed in time."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from bridge.remote.credentials import EntraToken
from bridge.remote.errors import RemoteUnauthorized
from tests.conformance.remote import remote, texts
from tests.conformance.test_tokens import ONE, SENDER, guarded
from tests.fixtures.issuing import jwks
from tests.fixtures.waiting import until


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """The JWKS file of the issuer."""
    path = tmp_path / "keys.json"
    path.write_bytes(jwks(ONE.jwk()))
    return path


class Credential:
    """A credential as azure-identity has them, whose tokens are said to live 2 s."""

    def __init__(self) -> None:
        self.given = 0

    def get_token(self, *scopes: str) -> Any:
        """Return a token of the issuer."""
        self.given += 1
        issued = {"token": ONE.token(), "expires_on": time.time() + 2}
        return type("AccessToken", (), issued)


async def test_tokens_of_a_credential(keys: Path) -> None:
    """They are put as a jwt, give what the issuer's grants give, and are asked for anew."""
    credential = Credential()
    async with (
        guarded(keys, SENDER) as (_, port),
        remote(port, EntraToken(credential)) as namespace,
    ):
        sender = await namespace.sender("q")
        await sender.send(texts(3))
        with pytest.raises(RemoteUnauthorized, match="Listen"):
            await namespace.receiver("q")
        await until(lambda: credential.given >= 3)
        await sender.send(texts(1))
        assert sender._link.is_open


async def test_a_credential_that_recovers(keys: Path) -> None:
    """Its failure is told; the next attach asks it again."""

    class Failing(Credential):
        def get_token(self, *scopes: str) -> Any:
            if not self.given:
                self.given += 1
                raise OSError("no network")
            return super().get_token(*scopes)

    async with guarded(keys, SENDER) as (_, port), remote(port, EntraToken(Failing())) as namespace:
        with pytest.raises(RemoteUnauthorized, match="no network"):
            await namespace.sender("q")
        await asyncio.wait_for((await namespace.sender("q")).send(texts(1)), 120)
