"""Attach requests: addresses, rights, sessions and modes are checked, and the link made.

docs/mapping.md says of each field of an attach whether it is heeded, answered or refused.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from bridge.engine import texts as engine_texts
from bridge.engine.api import Namespace, ReceiveMode
from bridge.gateway import cbs, management
from bridge.gateway.nodes import REQUEST_BYTES_MAX, ReplyLink, RequestLink, address_of
from bridge.gateway.receiving import ReceivingLink
from bridge.gateway.refusal import refuse
from bridge.gateway.sending import SendingLink
from bridge.gateway.sessions import SessionLink, wants_session
from bridge.gateway.termini import check
from bridge.machine.amqp10.link import IncomingLink, OutgoingLink
from bridge.model.claims import missing_right
from bridge.model.entity import Right, Subscription
from bridge.model.errors import NotAllowed, ServiceBusError
from bridge.model.name import EntityPath, SubQueue, parse_path, without_host

if TYPE_CHECKING:
    from bridge.gateway.connection import Connection


_REQUEST_FIELDS_BYTES = 65_536
"""Room for what a request has beside the message that it schedules."""


def attach(connection: Connection, link: IncomingLink | OutgoingLink) -> None:
    """Accept a link, or refuse the link with Azure's condition and words."""
    entity = ""
    try:
        asked = link.peer.target if isinstance(link, IncomingLink) else link.peer.source
        address = address_of(asked)
        entity = without_host(address)
        check(asked, link.name)
        if entity.lower() == cbs.ADDRESS:
            _attach_cbs(connection, link)
            return
        path = parse_path(address)
        entity = str(path)
        if path.is_management:
            _attach_management(connection, link, path)
        elif isinstance(link, IncomingLink):
            _attach_sender(connection, link, path)
        else:
            _attach_receiver(connection, link, path)
    except ServiceBusError as error:
        refuse(connection, link, entity, error)


def _attach_cbs(connection: Connection, link: IncomingLink | OutgoingLink) -> None:
    if isinstance(link, IncomingLink):
        credit = connection.gateway.settings.token_credit
        RequestLink(connection, link, cbs.ADDRESS, credit, cbs.on_request)
    else:
        ReplyLink(connection, link, cbs.ADDRESS)


def _attach_management(
    connection: Connection, link: IncomingLink | OutgoingLink, path: EntityPath
) -> None:
    if not connection.grants.covers(path):
        raise missing_right(Right.LISTEN, connection.resource_of(str(path)))
    limit_bytes = _request_bytes_max(connection.gateway.namespace, path)
    node = str(path).lower() + management.SUFFIX
    if isinstance(link, IncomingLink):
        credit = connection.gateway.settings.request_credit
        describe = partial(management.describe, path)
        handler = management.handler(path)
        RequestLink(connection, link, node, credit, handler, describe, limit_bytes)
    else:
        ReplyLink(connection, link, node)


def _request_bytes_max(namespace: Namespace, path: EntityPath) -> int:
    """Return the largest request to an entity: one that schedules the largest message fits."""
    entity = namespace.entity(path)
    if isinstance(entity, Subscription) or path.sub_queue is not SubQueue.NONE:
        return REQUEST_BYTES_MAX
    return max(REQUEST_BYTES_MAX, namespace.message_bytes_max(path) + _REQUEST_FIELDS_BYTES)


def _attach_sender(connection: Connection, link: IncomingLink, path: EntityPath) -> None:
    connection.grants.require(Right.SEND, path)
    SendingLink(connection, link, path, connection.gateway.namespace.message_bytes_max(path))


def _attach_receiver(connection: Connection, link: OutgoingLink, path: EntityPath) -> None:
    connection.grants.require(Right.LISTEN, path)
    entity = connection.gateway.namespace.receive_entity(path)
    is_of_session = wants_session(link.peer.source)
    needs_session = entity.requires_session and path.sub_queue is SubQueue.NONE
    if is_of_session and not needs_session:
        raise NotAllowed(engine_texts.SESSION_ON_PLAIN_ENTITY)
    if needs_session and not is_of_session:
        raise NotAllowed(engine_texts.PLAIN_ON_SESSION_ENTITY)
    mode = ReceiveMode.RECEIVE_AND_DELETE if link.wants_settled else ReceiveMode.PEEK_LOCK
    if is_of_session:
        SessionLink(connection, link, path, mode)
    else:
        receiving = ReceivingLink(connection, link, path)
        receiver = connection.gateway.namespace.open_receiver(
            path, mode=mode, deliver=receiving.deliver
        )
        link.owner = receiving
        receiving.begin(receiver)
