"""A connected client, as its links see it: what each of them may ask of the connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from bridge.access.access import Access
from bridge.engine.api import NamespaceVerbs
from bridge.gateway.client import texts
from bridge.gateway.client.backlog import UnconfirmedBytes
from bridge.gateway.client.client_log import ClientLog
from bridge.gateway.client.grants import Grants
from bridge.gateway.client.reply_links import ReplyLinks
from bridge.gateway.client.settings import GatewaySettings
from bridge.gateway.client.work import Work
from bridge.machine.amqp10.known_requests import KnownRequests
from bridge.machine.amqp10.link import IncomingLink, OutgoingLink
from bridge.machine.transactions.held_bytes import HeldBytes
from bridge.model.claims import Claims
from bridge.model.errors import EntityNotFound, ServiceBusError
from bridge.topology.shards import SessionKey
from bridge.wire.mapping.common_values import Form

if TYPE_CHECKING:
    from bridge.gateway.client.connection_transactions import ConnectionTransactions
    from bridge.gateway.client.links import Links


class Starved(Protocol):
    """A receiving link that waits for its client to read."""

    def pull(self) -> None:
        """Ask the engine for messages, within the client's credit and output limits."""


class SessionHolder(Protocol):
    """A link that holds a Service Bus session, or waits for one.

    Attributes:
        session_id: the session's id; `None` while waiting.
    """

    link: OutgoingLink
    session_id: str | None


class Client(Protocol):
    """A connected client.

    Attributes:
        namespace: the engine's verbs.
        access: verifies tokens.
        settings: the gateway's settings.
        grants: the client's rights.
        log: the log of the client's connection.
        work: the client's operations under way.
        unconfirmed: the client's messages that RabbitMQ has not confirmed, and requests under way.
        links: the client's links.
        reply_links: the links on which the client takes replies of `$cbs` and `$management`.
        known_requests: the client's requests to `$management` under way, and the last answered.
        sessions: the Service Bus sessions that the client holds, by entity key and session key.
        starved: receiving links that wait for the client to read.
        is_leaving: the client gets no more messages and sessions; see `Departures`.
        transacted: the bytes of all clients' transactions.
        transactions: the client's transactions; `None` before its first coordinator.
    """

    namespace: NamespaceVerbs
    access: Access
    settings: GatewaySettings
    grants: Grants
    log: ClientLog
    work: Work
    unconfirmed: UnconfirmedBytes
    links: Links
    reply_links: ReplyLinks
    known_requests: KnownRequests
    sessions: dict[tuple[str, SessionKey], SessionHolder]
    starved: dict[Starved, None]
    is_leaving: bool
    transacted: HeldBytes
    transactions: ConnectionTransactions | None

    @property
    def is_python_sdk(self) -> bool:
        """Whether the client is Azure's Python SDK, by the product that its `open` names."""

    @property
    def form(self) -> Form:
        """How the client reads messages."""

    @property
    def is_choked(self) -> bool:
        """Whether the client's output is unread or unsent beyond its limit."""

    def resource_of(self, path: str) -> str:
        """Return an entity as Azure's texts name it, `sb://host/entity`."""

    def describe(self, error: ServiceBusError, entity: str) -> tuple[str, str]:
        """Return condition and description of an error for the client."""

    def next_turn(self) -> int:
        """Return the place of a token that comes now, among all that came."""

    def put_claims(self, audience: str, claims: Claims, turn: int) -> None:
        """Add the claims of a token, unless one that came later is there.

        Links that stood on the token that it replaces, and have no right any more, end.

        Raises:
            Unauthorized: the connection holds too many tokens already.
        """

    def note_refused(self) -> None:
        """Note that a token of the client was refused; it may be about to put another one."""

    def flush_soon(self) -> None:
        """Write the output at the end of the loop's turn, or at once if it is large."""


def refuse(
    client: Client, link: IncomingLink | OutgoingLink, entity: str, error: ServiceBusError
) -> None:
    """Refuse a link with Azure's condition and words; `entity` is the client's name for it."""
    if isinstance(error, EntityNotFound):
        text = texts.not_found(client.resource_of(entity))
        name = client.settings.namespace_name
        link.refuse(error.condition, texts.tracked(text, name, entity))
    else:
        link.refuse(*client.describe(error, entity))
    client.log.info("attach.refused", entity=entity, reason=str(error))
