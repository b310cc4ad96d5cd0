"""What a client proves itself with: a rule's key, a signature, or a token of Microsoft Entra ID."""

from __future__ import annotations

import asyncio
import inspect
import logging
from dataclasses import dataclass, field
from typing import Any, Protocol, Self
from urllib.parse import quote

from bridge.model import connection_string
from bridge.model.access import parse, sign
from bridge.model.errors import Unauthorized
from bridge.remote.errors import UNAUTHORIZED, RemoteUnauthorized

SAS_KIND = "servicebus.windows.net:sastoken"
JWT_KIND = "jwt"
"""The types of tokens that `put-token` takes; Azure's SDK for Python says jwt of each."""

SAS_LIFETIME_S = 3_600
"""How long a token that is made of a key is valid (the SDKs: one hour)."""

ENTRA_SCOPE = "https://servicebus.azure.net/.default"
"""The scope of an issuer's token for Service Bus, as the SDKs ask for it."""

NO_TOKEN = "The credential gives no token"
"""The beginning of the error of a login that has failed before the namespace was asked."""


@dataclass(frozen=True, slots=True)
class RemoteToken:
    """A token for one audience.

    Attributes:
        kind: its type, for `put-token`.
        expires_s: its end, in seconds since 1970 UTC.
        is_renewable: whether there will be another one after it.
    """

    text: str = field(repr=False)
    kind: str
    expires_s: float
    is_renewable: bool = True


class RemoteCredential(Protocol):
    """Anything that gives a token for an audience."""

    async def token(self, audience: str, now_s: float) -> RemoteToken:
        """Return a token.

        Args:
            audience: the URI of what the token is for, `sb://NAMESPACE/ENTITY`.
            now_s: the time, in seconds since 1970 UTC.

        Raises:
            RemoteUnauthorized: there is none.
        """


@dataclass(frozen=True, slots=True)
class SharedKey:
    """The name of an authorization rule and one of its keys; no repr shows the key.

    Attributes:
        lifetime_s: how long each token that is made of it is valid.
    """

    name: str
    key: str = field(repr=False)
    lifetime_s: int = SAS_LIFETIME_S

    def sign(self, audience: str, expires_s: int) -> str:
        """Return a shared access signature for an audience, which ends at `expires_s`."""
        resource = quote(audience, safe="")
        signature = quote(sign(resource, self.key, expires_s), safe="")
        return (
            f"SharedAccessSignature sr={resource}&sig={signature}&se={expires_s}"
            f"&skn={quote(self.name, safe='')}"
        )

    async def token(self, audience: str, now_s: float) -> RemoteToken:
        """Return a token that is made now; see `RemoteCredential`."""
        expires_s = int(now_s) + self.lifetime_s
        return RemoteToken(self.sign(audience, expires_s), SAS_KIND, expires_s)


@dataclass(frozen=True, slots=True)
class SharedSignature:
    """A shared access signature that somebody else has made; it cannot be renewed."""

    text: str = field(repr=False)

    async def token(self, audience: str, now_s: float) -> RemoteToken:
        """Return the signature, whatever the audience; see `RemoteCredential`.

        Raises:
            RemoteUnauthorized: it is malformed, or has ended.
        """
        try:
            expires_s = parse(self.text).expires_s
        except Unauthorized as error:
            raise RemoteUnauthorized(UNAUTHORIZED, str(error)) from None
        if now_s >= expires_s:
            raise RemoteUnauthorized(UNAUTHORIZED, "The shared access signature has ended.")
        return RemoteToken(self.text, SAS_KIND, expires_s, is_renewable=False)


@dataclass(frozen=True, slots=True)
class EntraToken:
    """Tokens of Microsoft Entra ID, by anything with `get_token`, as azure-identity has it.

    Attributes:
        credential: its `get_token(scope)` returns an object with `token` and `expires_on`, seconds
            since 1970 UTC; or it is a coroutine function that does. One that blocks is called in a
            thread.
        scope: what is asked for; a namespace of one's own issuer may have another one.
    """

    credential: Any = field(repr=False)
    scope: str = ENTRA_SCOPE

    @classmethod
    def of_environment(cls) -> Self:
        """Return the login that azure-identity finds: variables, a managed identity, `az login`.

        Raises:
            ModuleNotFoundError: azure-identity is not installed.
        """
        from azure.identity import DefaultAzureCredential

        # What it warns of is in its error, too: without a log it would be on the terminal twice.
        logging.getLogger("azure").addHandler(logging.NullHandler())
        return cls(DefaultAzureCredential())

    async def token(self, audience: str, now_s: float) -> RemoteToken:
        """Return a token for the namespace, whatever the audience; see `RemoteCredential`."""
        ask = self.credential.get_token
        try:
            if inspect.iscoroutinefunction(ask):
                found = await ask(self.scope)
            else:
                found = await asyncio.to_thread(ask, self.scope)
                if inspect.isawaitable(found):
                    found = await found
        except Exception as error:  # the credential's own errors, of any library
            text = f"{NO_TOKEN}: {error}"
            raise RemoteUnauthorized(UNAUTHORIZED, text) from error
        return RemoteToken(found.token, JWT_KIND, found.expires_on)


def credential_in(text: str) -> SharedKey | SharedSignature | None:
    """Return the credential in a connection string; `None` if it has none, or is a host's name.

    Raises:
        ValueError: the connection string is malformed; it shows no key.
    """
    if not connection_string.is_connection_string(text):
        return None
    found = connection_string.read(text)
    if found.key_name and found.key:
        return SharedKey(found.key_name, found.key)
    return SharedSignature(found.signature) if found.signature else None
