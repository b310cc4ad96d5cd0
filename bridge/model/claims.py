"""What a client may do: grants, and the claims of a verified token or key.

What a client has proved once is kept with its rights: these are reckoned anew when rules change.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from bridge.model.access_rules import Segments, path_segments, reaches
from bridge.model.entity import Right
from bridge.model.errors import ServiceBusError, Unauthorized
from bridge.model.name import EntityPath, without_host

if TYPE_CHECKING:
    from bridge.model.access_policy import AccessPolicy

_URI = re.compile(
    r"(?:[a-z][a-z0-9+.\-]*://[^/?#]+|localhost|[^/?#]+[.:][^/?#]*)(?P<path>(?:/[^?#]*)?)(?:[?#].*)?",
    re.IGNORECASE | re.DOTALL,
)
"""Scheme, host and path; without a scheme the first part is the host when it looks like one, as in
the documentation's `sr=<namespace>.servicebus.windows.net`."""


class RefusedBearer(Unauthorized):
    """A refusal of which the bridge's log says more than the client is told.

    Attributes:
        cause: what the log adds; it holds no key and nothing of an unverified token.
    """

    def __init__(self, text: str, cause: str) -> None:
        super().__init__(text)
        self.cause = cause


def token_in(text: str) -> str:
    """Return a token that may stand behind the word `Bearer`."""
    scheme, _, rest = text.strip().partition(" ")
    return rest.strip() if scheme.lower() == "bearer" else text.strip()


def uri_path(text: str) -> str | None:
    """Return the path of a URI with a host; `None` if the text is none."""
    uri = _URI.fullmatch(text.strip())
    return None if uri is None else uri["path"]


def audience_path(audience: str) -> str:
    """Return the path of a put-token's audience, a URI with its scheme, or a path."""
    return re.split("[?#]", without_host(audience.strip()), maxsplit=1)[0].strip("/")


@dataclass(frozen=True, slots=True)
class Grant:
    """Rights over the part of the namespace that both the rule and the token's resource cover."""

    rule_scope: Segments
    token_scope: Segments
    rights: frozenset[Right]

    def covers(self, path: Segments) -> bool:
        """Whether the path lies at or below both scopes."""
        return path[: len(self.token_scope)] == self.token_scope and reaches(self.rule_scope, path)

    def begins_below(self, path: Segments) -> bool:
        """Whether the rule's scope, within the token's, lies below the path."""
        return (
            self.rule_scope[: len(path)] == path
            and self.rule_scope[: len(self.token_scope)] == self.token_scope
        )


class Proof(Protocol):
    """What a client has proved, whatever the rules give for it."""

    @property
    def expires_s(self) -> float | None:
        """When it ends (seconds since 1970 UTC); `None`: with the connection."""

    def grants(self, policy: AccessPolicy, scope: Segments) -> tuple[Grant, ...]:
        """Return the grants that the policy gives for the proof at a path."""

    def check(self, claims: Claims, audience: str) -> None:
        """Refuse a token that gives no right where it is put.

        Raises:
            Unauthorized: in Azure's words.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The rights of the bearer of a verified token, or of a verified name and key.

    Attributes:
        expires_s: when they end (seconds since 1970 UTC); `None`: with the connection.
        proof: what they were reckoned from.
    """

    grants: tuple[Grant, ...]
    expires_s: float | None = None
    proof: Proof = field(repr=False, compare=False)

    def allows(self, right: Right, path: EntityPath | str) -> bool:
        """Whether an operation that needs `right` is allowed at the path."""
        segments = path_segments(path)
        return any(right in grant.rights and grant.covers(segments) for grant in self.grants)

    def covers(self, path: EntityPath | str) -> bool:
        """Whether any right is given at the path (the audience of a put-token)."""
        segments = path_segments(path)
        return any(grant.covers(segments) for grant in self.grants)

    def check_audience(self, audience: str) -> None:
        """Refuse a token that is put where it gives no right.

        Raises:
            Unauthorized: the token gives no right at `audience` (a URI, or a path).
        """
        self.proof.check(self, audience)


def cause_of(error: ServiceBusError) -> str:
    """Return what the bridge's log says of a refused token or key; it holds no key."""
    text = str(error)
    return f"{text} ({error.cause})" if isinstance(error, RefusedBearer) else text


def missing_right(right: Right, resource: str) -> Unauthorized:
    """Return the error for an operation without the right; `resource` is `sb://host/q`."""
    return Unauthorized(missing_right_text(right, resource))


def missing_right_text(right: Right, resource: str) -> str:
    """Return Azure's words for an operation without the right."""
    return (
        f"Unauthorized access. '{right.value}' claim(s) are required to perform this operation. "
        f"Resource: '{resource}'."
    )


def wrong_audience() -> Unauthorized:
    """Return the error for a token that is put or used for another resource."""
    return Unauthorized(
        "InvalidAudience: The authorization header contains a token with a wrong audience."
    )


def expired(expires_s: float) -> Unauthorized:
    """Return the error for a token that has expired."""
    return Unauthorized(
        f"ExpiredToken: The token is expired. Expiration time: '{expiry_text(expires_s)}'"
    )


def expiry_text(seconds: float) -> str:
    """Return a time in seconds since 1970 UTC as text, whatever its size."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{seconds} s"
