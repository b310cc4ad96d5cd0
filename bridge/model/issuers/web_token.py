"""Web tokens (JWT, RFC 7519): verification against the issuers and their keys.

A token is `header.payload.signature`, each part in base64url. The order of the checks is length,
form, issuer, algorithm, key, signature, audience, times. Nothing of a token that has not passed
them is in an error.
"""

from __future__ import annotations

import json
import math
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jwt

from bridge.model.access_policy import AccessPolicy
from bridge.model.access_rules import Segments, path_segments
from bridge.model.claims import (
    Claims,
    Grant,
    RefusedBearer,
    audience_path,
    expired,
    missing_right_text,
    wrong_audience,
)
from bridge.model.entity import Right
from bridge.model.errors import ServerBusy, Unauthorized
from bridge.model.issuers.granting import matching, scoped
from bridge.model.issuers.issuer import Issuer, TokenGrant
from bridge.model.issuers.web_keys import KeySet, WebKey

LENGTH_MAX = 32_768
"""Characters of a token; Entra's have 1,000 to 3,000, with 200 groups 10,000."""

LEEWAY_S = 300
"""By how much the clocks of issuer and bridge may differ (Azure's libraries have the same)."""

DEPTH_MAX = 16
"""Objects and lists inside of each other."""

_FORM = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


class KeyAwaited(Exception):
    """A token of which the signature's key is not known, perhaps not yet.

    Attributes:
        issuer: the issuer whose keys are to be fetched.
        is_empty: the issuer has no keys at all.
    """

    def __init__(self, issuer: Issuer, *, is_empty: bool) -> None:
        super().__init__(str(issuer))
        self.issuer = issuer
        self.is_empty = is_empty

    @property
    def refusal(self) -> Unauthorized | ServerBusy:
        """What the client is told when the key does not come."""
        if self.is_empty:
            return ServerBusy("The keys of the token's issuer cannot be had now; try again.")
        return Unauthorized("InvalidSignature: The token has an invalid signature.")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebToken:
    """The claims of a verified token.

    Attributes:
        issuer: its `iss`.
        expires_s: its end with the leeway, seconds since 1970 UTC.
    """

    issuer: str
    claims: Mapping[str, Any] = field(repr=False)
    expires_s: float
    _matched: dict[tuple[TokenGrant, ...], tuple[TokenGrant, ...]] = field(
        default_factory=dict, repr=False, compare=False
    )
    """The present grants of its issuer, and those of them that it matches: a token of thousands of
    groups may be put for a thousand names, and is read once after a change of the rules."""

    @property
    def subject(self) -> str:
        """The token's subject, for the log; "" if it has none."""
        for name in ("sub", "oid", "appid", "azp"):
            value = self.claims.get(name)
            if isinstance(value, str) and value:
                return value[:200]
        return ""

    def grants(self, policy: AccessPolicy, scope: Segments) -> tuple[Grant, ...]:
        """Return the grants of the token's issuer; none if the policy does not know the issuer."""
        issuer = policy.by_name.get(self.issuer)
        if issuer is None:
            return ()
        if issuer.grants not in self._matched:
            self._matched.clear()
            self._matched[issuer.grants] = matching(issuer, self.claims)
        return scoped(self._matched[issuer.grants], scope)

    def check(self, claims: Claims, audience: str) -> None:
        """Refuse the token where it gives no right, neither there nor below."""
        path = path_segments(audience_path(audience))
        if not any(grant.covers(path) or grant.begins_below(path) for grant in claims.grants):
            raise self.refused(missing_right_text(Right.LISTEN, audience))

    def refused(self, text: str) -> RefusedBearer:
        """Return the error of a refusal, with whose token it was for the log."""
        return RefusedBearer(text, f"subject {self.subject!r} of {self.issuer}")


def verify_web_token(
    text: str,
    policy: AccessPolicy,
    keys_of: Callable[[Issuer], KeySet | None],
    now_s: float,
) -> WebToken:
    """Return a token that one of the policy's issuers has signed.

    Args:
        keys_of: returns an issuer's present keys; `None` when there are none.

    Raises:
        Unauthorized: in Azure's words: the token is malformed, of another issuer, its signature or
            audience is wrong, or its time is not now.
        KeyAwaited: the key of its signature is not among the issuer's keys.
    """
    header, payload = _parts(text)
    name = payload.get("iss")
    issuer = policy.by_name.get(name) if isinstance(name, str) else None
    if issuer is None or not isinstance(name, str):
        raise Unauthorized("InvalidIssuer: Token issuer is invalid.")
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in issuer.algorithms:
        raise _malformed(f"its algorithm is none of {', '.join(issuer.algorithms)}")
    key = _key(issuer, keys_of(issuer), header.get("kid"), algorithm)
    try:
        claims = _signed(text, issuer, name, key, algorithm)
    except jwt.InvalidAudienceError:  # the signature is right
        said = WebToken(issuer=name, claims=payload, expires_s=0.0)
        raise said.refused(str(wrong_audience())) from None
    token = WebToken(issuer=name, claims=claims, expires_s=_end_s(claims) + LEEWAY_S)
    _check_times(token, now_s)
    return token


def _parts(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the unverified header and payload."""
    if len(text) > LENGTH_MAX:
        raise _malformed(f"it is longer than {LENGTH_MAX} characters")
    if not _FORM.fullmatch(text):
        raise _malformed("it is not three parts of base64url")
    header, payload, _ = text.split(".")
    found = _object(header, "header")
    if "crit" in found or "b64" in found:
        raise _malformed("its header has extensions that are not known here")
    return found, _object(payload, "payload")


def _object(part: str, what: str) -> dict[str, Any]:
    """Return the object in a part of a token, of which no name is there twice."""
    try:
        value = json.loads(
            urlsafe_b64decode(part + "=" * (-len(part) % 4)),
            object_pairs_hook=_unique,
            parse_constant=_no_number,
        )
    except (ValueError, RecursionError):
        raise _malformed(f"its {what} is no JSON object of different names") from None
    if not isinstance(value, dict):
        raise _malformed(f"its {what} is no JSON object")
    if _is_deep(value):
        raise _malformed(f"its {what} is nested too deeply")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _no_number(text: str) -> float:
    raise ValueError("it is no number of JSON")


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEPTH_MAX):
        insides = [each.values() if isinstance(each, dict) else each for each in level]
        level = [one for inside in insides for one in inside if isinstance(one, dict | list)]
        if not level:
            return False
    return True


def _key(issuer: Issuer, keys: KeySet | None, kid: object, algorithm: str) -> WebKey:
    """Return the key that the header names.

    Raises:
        Unauthorized: it names a key of another kind, or none where there are several.
        KeyAwaited: there is no such key.
    """
    if kid is not None and not isinstance(kid, str):
        raise _malformed("its key id is no text")
    if keys is None:
        raise KeyAwaited(issuer, is_empty=True)
    found = keys.of(kid)
    if not found:
        if kid is None:
            raise _malformed("it names no key, and its issuer has several")
        raise KeyAwaited(issuer, is_empty=False)
    for key in found:
        if algorithm in key.algorithms:
            return key
    raise _malformed("its key is for another algorithm")


def _signed(text: str, issuer: Issuer, name: str, key: WebKey, algorithm: str) -> dict[str, Any]:
    """Return the claims of a token with the right signature, audience and issuer.

    Raises:
        jwt.InvalidAudienceError: the signature is right, and the audience is not.
    """
    try:
        return jwt.decode(
            text,
            key=key.key,
            algorithms=[algorithm],
            audience=issuer.audiences,
            issuer=name,
            options={
                "require": ["exp", "iss", "aud"],
                "verify_exp": False,  # the three times are ours: by the bridge's clock
                "verify_nbf": False,
                "verify_iat": False,
            },
        )
    except jwt.InvalidSignatureError:
        raise Unauthorized("InvalidSignature: The token has an invalid signature.") from None
    except jwt.MissingRequiredClaimError as error:
        raise _malformed(f"it has no {error.claim!r}") from None
    except jwt.InvalidAudienceError:
        raise
    except Exception:
        raise _malformed("it cannot be verified") from None


def _end_s(claims: Mapping[str, Any]) -> float:
    end_s = _time(claims, "exp")
    if end_s is None:
        raise _malformed("it has no 'exp'")
    return end_s


def _check_times(token: WebToken, now_s: float) -> None:
    """Raise unless a token's time is now."""
    if now_s >= token.expires_s:
        raise token.refused(str(expired(token.expires_s - LEEWAY_S)))
    for name in ("nbf", "iat"):
        begins_s = _time(token.claims, name)
        if begins_s is not None and now_s < begins_s - LEEWAY_S:
            raise token.refused(f"InvalidToken: The token is not yet valid, by its {name!r}.")


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    """Return a time of a token in seconds since 1970 UTC; `None` if it is not there."""
    if name not in claims:
        return None
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _malformed(f"its {name!r} is no number")
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds):
        raise _malformed(f"its {name!r} is no finite number")
    return seconds


def _malformed(why: str) -> Unauthorized:
    return Unauthorized(f"MalformedToken: The token cannot be read: {why}.")
