"""Rights of a connection: the claims of its tokens, and their expiry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain

from bridge.access.access import Access
from bridge.model.access_rules import path_segments
from bridge.model.claims import Claims, Grant, Proof, missing_right
from bridge.model.entity import Right
from bridge.model.name import EntityPath

AUDIENCES_MAX = 1_000
"""Tokens that one connection may hold; SDKs hold one for each entity, and one for its
`$management`."""


class Grants:
    """The claims of one connection, by audience of the token.

    When rules change, the rights of each are reckoned anew before they are used again.

    Args:
        access: reckons rights, and has the wall clock.
    """

    def __init__(self, access: Access, resource_of: Callable[[str], str]) -> None:
        self._access = access
        self._resource_of = resource_of
        self._generation = access.generation
        self._claims: dict[tuple[str, ...], Claims] = {}
        self._turns: dict[tuple[str, ...], int] = {}
        self._last: Proof | None = None

    def __repr__(self) -> str:
        return f"<Grants {sorted('/'.join(audience) for audience in self._claims)}>"

    @property
    def next_expiry_s(self) -> float | None:
        """The earliest expiry among the claims."""
        return min(
            (claims.expires_s for claims in self._claims.values() if claims.expires_s is not None),
            default=None,
        )

    def put(self, audience: str, claims: Claims, turn: int) -> bool:
        """Store the claims of a verified token in place of the audience's earlier claims.

        Args:
            turn: when the token came, among all of the connection: one that came later stays.

        Returns whether there was room for the claims.
        """
        key = path_segments(audience)
        if key not in self._claims and len(self._claims) >= AUDIENCES_MAX:
            return False
        if key not in self._claims or turn > self._turns[key]:
            if claims.proof == self._last:  # one token for many entities is kept once
                claims = replace(claims, proof=self._last)
            self._last = claims.proof
            self._claims[key] = claims
            self._turns[key] = turn
        return True

    def held_for(self, audience: str) -> frozenset[Grant]:
        """Return what the claims that were put for an audience grant."""
        claims = self._claims.get(path_segments(audience))
        return frozenset() if claims is None else frozenset(claims.grants)

    def drop_expired(self) -> None:
        """Forget the expired claims."""
        now_s = self._access.now_s()
        for audience, claims in list(self._claims.items()):
            if claims.expires_s is not None and claims.expires_s <= now_s:
                del self._claims[audience], self._turns[audience]

    def _is_given(self, path: EntityPath, gives: Callable[[Claims], bool]) -> bool:
        """Whether any valid claims give what is asked for at a path.

        Those that were put for the path or above it are asked first: each of 1,000 links has one of
        1,000 tokens.
        """
        self._reckon()
        now_s = self._access.now_s()
        segments = path_segments(path)
        above = (self._claims.get(segments[:length]) for length in range(len(segments), -1, -1))
        return any(
            claims is not None
            and (claims.expires_s is None or claims.expires_s > now_s)
            and gives(claims)
            for claims in chain(above, self._claims.values())
        )

    def _reckon(self) -> None:
        """Follow a change of the rules."""
        if self._generation != self._access.generation:
            self._generation = self._access.generation
            self._claims = {
                audience: self._access.reckoned(claims, audience)
                for audience, claims in self._claims.items()
            }

    def allows(self, right: Right, path: EntityPath) -> bool:
        """Whether any valid claim gives the right."""
        return self._is_given(path, lambda claims: claims.allows(right, path))

    def covers(self, path: EntityPath) -> bool:
        """Whether any valid claim gives any right."""
        return self._is_given(path, lambda claims: claims.covers(path))

    def require(self, right: Right, path: EntityPath) -> None:
        """Check that a claim allows a right.

        Raises:
            Unauthorized: in Azure's words.
        """
        if not self.allows(right, path):
            raise missing_right(right, self._resource_of(str(path)))
