"""What verified claims grant, by the grants of their issuer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bridge.model.access_rules import Segments
from bridge.model.claims import Grant
from bridge.model.issuers.issuer import Issuer, TokenGrant

_SPLIT = frozenset((("scp",), ("scope",)))
"""Claims whose text is a list with spaces between (RFC 8693, section 4.2; `scp` is Entra's)."""


def values_at(claims: Mapping[str, Any], path: Sequence[str]) -> frozenset[str]:
    """Return the texts of a claim: its text, or those of its list; none of any other value.

    A list that holds anything but texts has none.
    """
    value: Any = claims
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            return frozenset()
        value = value[name]
    if isinstance(value, str):
        return frozenset(value.split() if tuple(path) in _SPLIT else (value,))
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return frozenset(value)
    return frozenset()


def grants_of(issuer: Issuer, claims: Mapping[str, Any], scope: Segments = ()) -> tuple[Grant, ...]:
    """Return what claims grant at a path and below it.

    Args:
        issuer: the issuer that has signed the claims.
        scope: the path that the token is put for.
    """
    return scoped(matching(issuer, claims), scope)


def scoped(grants: tuple[TokenGrant, ...], scope: Segments) -> tuple[Grant, ...]:
    """Return what grants give at a path and below it."""
    return tuple(Grant(grant.scope, scope, grant.rights) for grant in grants)


def matching(issuer: Issuer, claims: Mapping[str, Any]) -> tuple[TokenGrant, ...]:
    """Return the issuer's grants of which the claims have a value."""
    found = []
    values: dict[tuple[str, ...], frozenset[str]] = {}
    for grant in issuer.grants:
        if grant.claim not in values:
            values[grant.claim] = values_at(claims, grant.claim)
        if not grant.values.isdisjoint(values[grant.claim]):
            found.append(grant)
    return tuple(found)


def lacks_groups(issuer: Issuer, claims: Mapping[str, Any]) -> bool:
    """Whether a grant looks for groups that Entra has left out of the token: there were too many.

    Source: learn.microsoft.com, access token claims reference, "Groups overage claim".
    """
    if "groups" in claims or not any(grant.claim == ("groups",) for grant in issuer.grants):
        return False
    elsewhere = claims.get("_claim_names")
    is_elsewhere = isinstance(elsewhere, Mapping) and "groups" in elsewhere
    return is_elsewhere or claims.get("hasgroups") in (True, "true")
