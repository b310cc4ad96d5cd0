"""Attach requests: addresses, rights, sessions and modes are checked, and the link made.

docs/mapping.md says of each field of an attach whether it is heeded, answered or refused.
"""

from __future__ import annotations

from functools import partial

from bridge.engine import texts as engine_texts
from bridge.engine.api import NamespaceVerbs, ReceiveMode
from bridge.gateway.client.client import Client, refuse
from bridge.gateway.client.reply_links import ReplyLink, address_of
from bridge.gateway.connection.termini import check
from bridge.gateway.links.importing import ImportingLink, run_of
from bridge.gateway.links.receiving import ReceivingLink
from bridge.gateway.links.relaying import (
    RelayingLink,
    refuse_without_source,
    source_of,
    subscription_of,
)
from bridge.gateway.links.sending import SendingLink
from bridge.gateway.links.sessions import SessionLink, wants_session
from bridge.gateway.links.subscribing import SubscribingLink, is_subscriber, is_there, wanted_by
from bridge.gateway.links.temporary_queues import (
    TemporaryQueueLink,
    asks_for_queue,
    temporary_queue,
)
from bridge.gateway.nodes import cbs, management, requests
from bridge.gateway.nodes.coordinator import CoordinatorLink
from bridge.gateway.nodes.request_links import REQUEST_BYTES_MAX, RequestLink
from bridge.machine.amqp10.link import IncomingLink, OutgoingLink
from bridge.model.claims import missing_right
from bridge.model.entity import Right, Subscription
from bridge.model.errors import NotAllowed, ServiceBusError
from bridge.model.name import EntityPath, SubQueue, parse_path, without_host
from bridge.wire.amqp10.performatives import Coordinator
from bridge.wire.link_properties import RELAY_SOURCE

_REQUEST_FIELDS_BYTES = 65_536
"""Room for what a request has beside the message that it schedules."""


def attach(client: Client, link: IncomingLink | OutgoingLink) -> None:
    """Accept a link, or refuse the link with Azure's condition and words."""
    entity = ""
    try:
        asked = link.peer.target if isinstance(link, IncomingLink) else link.peer.source
        if isinstance(link, IncomingLink) and isinstance(asked, Coordinator):
            CoordinatorLink(client, link)
            return
        address = address_of(asked)
        entity = without_host(address)
        check(asked, link.name)
        if entity.lower() == cbs.ADDRESS:
            _attach_cbs(client, link)
            return
        temporary = None
        if isinstance(link, IncomingLink) and asks_for_queue(asked):
            opened = link.session.endpoint.peer
            temporary = temporary_queue(None if opened is None else opened.properties)
            address = temporary.name
        path = parse_path(address)
        entity = str(path)
        transactions = client.transactions
        if path.is_management:
            _attach_management(client, link, path)
        elif isinstance(link, IncomingLink) and temporary is not None:
            client.grants.require(Right.MANAGE, path)
            TemporaryQueueLink(client, link, temporary)
        elif isinstance(link, IncomingLink):
            _attach_sender(client, link, path)
        else:
            wanted = wanted_by(client, link, path, asked) if is_subscriber(asked) else None
            if transactions is not None:
                transactions.check_receiver(link, path)
            if wanted is None:
                _attach_receiver(client, link, path)
            else:
                _attach_subscriber(client, link, wanted)
        if transactions is not None:
            transactions.link_attached(link, path)
    except ServiceBusError as error:
        refuse(client, link, entity, error)


def _attach_cbs(client: Client, link: IncomingLink | OutgoingLink) -> None:
    if isinstance(link, IncomingLink):
        credit = client.settings.token_credit
        RequestLink(client, link, cbs.ADDRESS, credit, cbs.on_request)
    else:
        ReplyLink(client.reply_links, client.flush_soon, link, cbs.ADDRESS)


def _attach_management(client: Client, link: IncomingLink | OutgoingLink, path: EntityPath) -> None:
    if not client.grants.covers(path):
        raise missing_right(Right.LISTEN, client.resource_of(str(path)))
    limit_bytes = _request_bytes_max(client.namespace, path)
    node = str(path).lower() + management.SUFFIX
    if isinstance(link, IncomingLink):
        credit = client.settings.request_credit
        describe = partial(requests.describe, path)
        handler = management.handler(path)
        RequestLink(client, link, node, credit, handler, describe, limit_bytes)
    else:
        ReplyLink(client.reply_links, client.flush_soon, link, node)


def _request_bytes_max(namespace: NamespaceVerbs, path: EntityPath) -> int:
    """Return the largest request to an entity: one that schedules the largest message fits."""
    entity = namespace.entity(path)
    if isinstance(entity, Subscription) or path.sub_queue is not SubQueue.NONE:
        return REQUEST_BYTES_MAX
    return max(REQUEST_BYTES_MAX, namespace.message_bytes_max(path) + _REQUEST_FIELDS_BYTES)


def _attach_sender(client: Client, link: IncomingLink, path: EntityPath) -> None:
    run = run_of(link.peer.properties)
    if run is not None:
        client.grants.require(Right.MANAGE, path)
        ImportingLink(client, link, path, run)
        return
    client.grants.require(Right.SEND, path)
    source = source_of(link.peer.properties)
    if source is None:
        refuse_without_source(link.peer.properties)
        SendingLink(client, link, path, client.namespace.message_bytes_max(path))
    else:
        client.grants.require(Right.MANAGE, path)
        client.namespace.check_known(RELAY_SOURCE)
        only = subscription_of(client, path, link.peer.properties)
        RelayingLink(client, link, path, client.namespace.message_bytes_max(path), source, only)


def _attach_subscriber(client: Client, link: OutgoingLink, wanted: Subscription) -> None:
    path = parse_path(wanted.path)
    if is_there(client.namespace, path):
        _attach_receiver(client, link, path)
        return
    client.grants.require(Right.LISTEN, path)
    client.grants.require(Right.MANAGE, path)
    SubscribingLink(client, link, path, wanted)


def _attach_receiver(client: Client, link: OutgoingLink, path: EntityPath) -> None:
    client.grants.require(Right.LISTEN, path)
    entity = client.namespace.receive_entity(path)
    is_of_session = wants_session(link.peer.source)
    needs_session = entity.requires_session and path.sub_queue is SubQueue.NONE
    if is_of_session and not needs_session:
        raise NotAllowed(engine_texts.SESSION_ON_PLAIN_ENTITY)
    if needs_session and not is_of_session:
        raise NotAllowed(engine_texts.PLAIN_ON_SESSION_ENTITY)
    mode = ReceiveMode.RECEIVE_AND_DELETE if link.wants_settled else ReceiveMode.PEEK_LOCK
    if is_of_session:
        SessionLink(client, link, path, mode)
    else:
        receiving = ReceivingLink(client, link, path)
        receiver = client.namespace.open_receiver(path, mode=mode, deliver=receiving.deliver)
        link.owner = receiving
        receiving.begin(receiver)
