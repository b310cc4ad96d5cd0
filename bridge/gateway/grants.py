"""Rights of a connection: the claims of its tokens, and their expiry."""

from __future__ import annotations

from collections.abc import Callable

from bridge.model.access import Claims, missing_right
from bridge.model.access_rules import path_segments
from bridge.model.entity import Right
from bridge.model.name import EntityPath

AUDIENCES_MAX = 1_000
"""Tokens that one connection may hold; SDKs hold one for each entity, and one for its
`$management`."""


class Grants:
    """The claims of one connection, by audience of the token.

    Args:
        now_s: the wall clock, seconds since 1970 UTC.
    """

    def __init__(self, now_s: Callable[[], float], resource_of: Callable[[str], str]) -> None:
        self._now_s = now_s
        self._resource_of = resource_of
        self._claims: dict[tuple[str, ...], Claims] = {}

    def __repr__(self) -> str:
        return f"<Grants {sorted('/'.join(audience) for audience in self._claims)}>"

    @property
    def next_expiry_s(self) -> float | None:
        """The earliest expiry among the claims."""
        return min(
            (claims.expires_s for claims in self._claims.values() if claims.expires_s is not None),
            default=None,
        )

    def put(self, audience: str, claims: Claims) -> bool:
        """Store the claims of a verified token in place of the audience's earlier claims.

        Returns whether there was room for the claims.
        """
        key = path_segments(audience)
        if key not in self._claims and len(self._claims) >= AUDIENCES_MAX:
            return False
        self._claims[key] = claims
        return True

    def drop_expired(self) -> None:
        """Forget the expired claims."""
        now_s = self._now_s()
        for audience, claims in list(self._claims.items()):
            if claims.expires_s is not None and claims.expires_s <= now_s:
                del self._claims[audience]

    def _valid(self) -> list[Claims]:
        now_s = self._now_s()
        return [
            claims
            for claims in self._claims.values()
            if claims.expires_s is None or claims.expires_s > now_s
        ]

    def allows(self, right: Right, path: EntityPath) -> bool:
        """Whether any valid claim gives the right."""
        return any(claims.allows(right, path) for claims in self._valid())

    def covers(self, path: EntityPath) -> bool:
        """Whether any valid claim gives any right."""
        return any(claims.covers(path) for claims in self._valid())

    def require(self, right: Right, path: EntityPath) -> None:
        """Check that a claim allows a right.

        Raises:
            Unauthorized: in Azure's words.
        """
        if not self.allows(right, path):
            raise missing_right(right, self._resource_of(str(path)))
