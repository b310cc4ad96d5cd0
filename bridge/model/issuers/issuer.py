"""An issuer of web tokens that the rules file names, and what its tokens grant."""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge.model.access_rules import Segments
from bridge.model.entity import Right

ALGORITHMS = ("RS256", "PS256", "ES256")
"""Signatures that are taken; all are of public keys."""

ENTRA_AUDIENCES = (
    "https://servicebus.azure.net",
    "https://servicebus.azure.net/",
    "80a10ef9-8168-493d-abf9-3297c4ef6e3c",
)
"""The audiences of Microsoft Entra's tokens for Service Bus: the resource, and its application id
(tokens of version 2.0 have the latter)."""

ROLES = {
    "Azure Service Bus Data Owner": frozenset(Right),
    "Azure Service Bus Data Sender": frozenset({Right.SEND}),
    "Azure Service Bus Data Receiver": frozenset({Right.LISTEN}),
}
"""Azure's built-in roles (learn.microsoft.com: role-based access control, "Integration")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySource:
    """Where an issuer's keys come from: one of `file`, `url` and `discovery`.

    Attributes:
        file: the path of a JWKS file.
        url: the address of a JWKS.
        discovery: the address of a discovery document, which names that of the JWKS.
        ca: the path of the authorities' certificates; "": those that the system trusts.
        bearer: the path of a file with a token that the addresses are asked with; "" for none.
    """

    file: str = ""
    url: str = ""
    discovery: str = ""
    ca: str = ""
    bearer: str = ""

    def __str__(self) -> str:
        return self.file or self.url or self.discovery


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenGrant:
    """Rights of every token with one of some values in a claim.

    Attributes:
        claim: the claim's name; for one inside of others, the names from the outermost on.
        values: the values, compared as they are.
        scope: the queue, topic or subscription; empty for the namespace.
    """

    claim: tuple[str, ...]
    values: frozenset[str]
    rights: frozenset[Right]
    scope: Segments = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """An issuer whose tokens are taken.

    Attributes:
        names: values of a token's `iss`, of which it has one.
        audiences: values of `aud`, of which it has one at least.
        algorithms: some of `ALGORITHMS`.
        grants: what its tokens may do; those of other issuers are not looked at.
    """

    names: tuple[str, ...]
    audiences: tuple[str, ...]
    keys: KeySource
    algorithms: tuple[str, ...] = ALGORITHMS
    grants: tuple[TokenGrant, ...] = field(default=())

    def __str__(self) -> str:
        return self.names[0]


def entra(tenant: str, grants: tuple[TokenGrant, ...], keys: KeySource | None = None) -> Issuer:
    """Return Microsoft Entra as the issuer of one tenant's tokens, of both versions.

    Args:
        tenant: the tenant's id, a GUID in lower case.
        keys: where the keys come from, if not from Entra's own discovery.
    """
    name = f"https://login.microsoftonline.com/{tenant}/v2.0"
    return Issuer(
        names=(name, f"https://sts.windows.net/{tenant}/"),
        audiences=ENTRA_AUDIENCES,
        keys=keys or KeySource(discovery=discovery_of(name)),
        grants=grants,
    )


def discovery_of(name: str) -> str:
    """Return the address of an issuer's discovery document (OpenID Connect Discovery, 4)."""
    return f"{name.rstrip('/')}/.well-known/openid-configuration"
