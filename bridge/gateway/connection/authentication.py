"""Authentication of a connection: login, tokens, and the end of links whose token expires."""

from __future__ import annotations

from bridge.gateway.client import texts
from bridge.gateway.client.admission import ConnectionEnd, Visit
from bridge.gateway.client.connections import Connections, OpenConnection
from bridge.gateway.client.grants import Grants
from bridge.gateway.client.settings import MECHANISMS
from bridge.gateway.client.timers import Timers
from bridge.machine.amqp10.endpoint import AmqpEndpoint
from bridge.machine.amqp10.events import SaslChosen
from bridge.model.claims import Claims, cause_of
from bridge.model.errors import Unauthorized

REFUSALS_MAX = 4
"""Refused tokens after which an unauthenticated client gets no more time: SDKs try four times."""


class Authentication:
    """Login and tokens of one connection.

    Args:
        connections: all connections of the gateway.
        visit: the connection's admission; limits the time of an unauthenticated client.

    Attributes:
        grants: the client's rights.
    """

    def __init__(
        self,
        connection: OpenConnection,
        connections: Connections,
        endpoint: AmqpEndpoint,
        timers: Timers,
        visit: Visit,
    ) -> None:
        self._connection = connection
        self._connections = connections
        self._endpoint = endpoint
        self._timers = timers
        self._visit = visit
        self.grants = Grants(connection.access, connection.resource_of)
        self._turn = 0
        self._refusals = 0

    def await_proof(self) -> None:
        """End the connection when the client has not authenticated in time."""
        left_s = self._visit.left_s(self._connection.settings.authorization_s)
        self._timers.set("authorization", left_s, self._on_unauthorized)

    def next_turn(self) -> int:
        """Return the place of a token; see `Client.next_turn`."""
        self._turn += 1
        return self._turn

    def put_claims(self, audience: str, claims: Claims, turn: int) -> None:
        """Add the claims of a token; see `Client.put_claims`."""
        if self._connection.is_lost:  # while the token waited for a key
            return
        before = self.grants.held_for(audience)
        if not self.grants.put(audience, claims, turn):
            raise Unauthorized("The connection holds too many tokens.")
        if not before <= self.grants.held_for(audience):
            self._connections.recheck(self._connection)
        self._endpoint.authenticated()
        self._visit.known()
        self._timers.cancel("authorization")
        self._watch_expiry()

    def note_refused(self) -> None:
        """Give a client time for another token; see `Client.note_refused`."""
        self._refusals += 1
        if self._visit.is_unauthenticated and self._refusals < REFUSALS_MAX:
            refused_s = self._connection.settings.refused_s
            self._timers.set("authorization", refused_s, self._on_unauthorized)

    def on_sasl(self, event: SaslChosen) -> None:
        """Answer a login."""
        is_ok = event.mechanism in MECHANISMS
        if event.mechanism == "PLAIN":
            is_ok = self._is_plain_proven(event.response)
        if not is_ok:
            self.note_fault()
        self._endpoint.sasl_outcome(is_ok=is_ok)

    def note_fault(self) -> None:
        """Count a protocol fault or a failed login."""
        is_known = self._endpoint.is_authenticated
        self._connections.note_ended(
            self._connection, ConnectionEnd.FAULT if is_known else ConnectionEnd.LOGIN
        )

    def _is_plain_proven(self, response: bytes) -> bool:
        """Check a PLAIN login (RFC 4616): authorization id, rule name and key, separated by NUL."""
        parts = response.decode("utf-8", "replace").split("\0")
        if len(parts) != 3:
            return False
        try:
            claims = self._connection.access.verify_key(parts[1], parts[2])
            self.put_claims("", claims, self.next_turn())
        except Unauthorized as error:
            self._connection.log.info("sasl.refused", rule=parts[1], reason=cause_of(error))
            return False
        return True

    def _on_unauthorized(self) -> None:
        settings = self._connection.settings
        seconds = settings.refused_s if self._refusals else settings.authorization_s
        text = texts.UNAUTHORIZED_CONNECTION.format(seconds=seconds)
        self._connection.end(ConnectionEnd.UNAUTHENTICATED, Unauthorized.condition, text)

    def _watch_expiry(self) -> None:
        expiry_s = self.grants.next_expiry_s
        if expiry_s is not None:
            # a day at most: the wall clock may be set in between
            delay_s = min(max(expiry_s - self._connection.access.now_s(), 0.0), 86_400.0)
            self._timers.set("expiry", delay_s, self._on_expiry)

    def _on_expiry(self) -> None:
        self.grants.drop_expired()
        self._connection.links.drop_unauthorized()
        self._watch_expiry()
        self._connection.flush()
