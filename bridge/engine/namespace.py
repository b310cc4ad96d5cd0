"""The engine's namespace on RabbitMQ: the engine's parts, composed to the gateways' interface."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from uuid import UUID

from bridge.background.supervisor import Standing, Supervisor
from bridge.background.tasks import Tasks
from bridge.broker.connection.address import is_there
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import BrokerError
from bridge.broker.management.api import Management
from bridge.broker.message_size import rabbitmq_bytes_max
from bridge.broker.outcome import resolve
from bridge.engine import texts
from bridge.engine.administration.bulk_declaration import OnProgress
from bridge.engine.administration.changes import Administration
from bridge.engine.administration.dead_letters_again import DeadLettersAgain
from bridge.engine.administration.directory import Directory
from bridge.engine.administration.disposal import Disposal
from bridge.engine.administration.notifications import (
    CHANGED,
    ENTITY_CHANGED,
    FULL,
    PEEKED,
    Notifications,
)
from bridge.engine.administration.policies import Policies
from bridge.engine.administration.reconciler import Reconciler
from bridge.engine.administration.unmet_settings import UnmetSettings
from bridge.engine.administration.upkeep import OwnBindings, Upkeep
from bridge.engine.administration.usage import NOT_LED, LedMs, Usage
from bridge.engine.api import (
    DeadLetter,
    Disposition,
    OnSent,
    OnSettled,
    Received,
    ReceiveMode,
    Release,
    SessionReceiver,
    Undeliverable,
)
from bridge.engine.bridges import Bridges
from bridge.engine.browse.browsing import Browsing
from bridge.engine.browse.settlements import Settlements
from bridge.engine.clients import Clients
from bridge.engine.clock import now_ms
from bridge.engine.counters import Counters
from bridge.engine.counting import Counting
from bridge.engine.deferral.entities import Deferral
from bridge.engine.deferral.receiving import DeferredReceiving
from bridge.engine.forwarding.forwarder import Forwarder
from bridge.engine.forwarding.forwarding import Forwarding
from bridge.engine.membership import Membership
from bridge.engine.ownership.services import Services
from bridge.engine.peers import Peers, WaitingHere
from bridge.engine.poison import Poison
from bridge.engine.receiving.connections import ConsumerConnections
from bridge.engine.receiving.deletion import PORTION, Deletion
from bridge.engine.receiving.receiver import QueueReceiver
from bridge.engine.receiving.receivers import Receiving
from bridge.engine.receiving.turn import Turn
from bridge.engine.sending.requests import Sending
from bridge.engine.sending.sender import Sender
from bridge.engine.sessions.accepting import Accepting
from bridge.engine.sessions.deferred import DeferredLocks
from bridge.engine.settlement.departure import Departure
from bridge.engine.settlement.locktable import LockTable
from bridge.engine.settlement.settling import Settling, refusal
from bridge.engine.state import State
from bridge.machine.arrival import MALFORMED_MESSAGE
from bridge.machine.standbys import Standbys
from bridge.message.envelopes import Outgoing
from bridge.model import entity as model
from bridge.model.errors import (
    EntityDisabled,
    NotAllowed,
    NotImplementedHere,
    ServerBusy,
    ServiceBusError,
)
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import description, names
from bridge.topology.capabilities import Capabilities
from bridge.topology.entity_table import Changes
from bridge.topology.lacking import in_words
from bridge.topology.resources import Finding
from bridge.wire.administration import Administer, Request, Response

log = logging.getLogger(__name__)


class RabbitNamespace:
    """A namespace whose entities are objects of RabbitMQ; see `api.Namespace`.

    Args:
        name: the prefix of the names of its connections in RabbitMQ.
        scheduled: returns the count of an entity's scheduled messages, or `None` when this process
            does not lead the entity.
        clock: the clock for the idleness of temporary entities (UTC ms).
        accessed: returns when an entity was used last, as far as its leader in this process knows;
            see `Usage`.
        waiting: returns the numbers of an entity's scheduled messages, from a number on, up to a
            count; `None` likewise.
        administer: answers requests to the administration API that come through RabbitMQ.
        session_shards: the number of shards of new session entities.
        owns_vhost: the virtual host has no quorum queues but the bridge's, by its owner's word.
        supervisor: keeps running what is meant to run until `close`.

    Attributes:
        browsing: answers peeks.
        directory: the definitions; `follow` it for changes.
        counters: the totals for metrics.
        counting: counts messages.
        disposal: deletes idle entities.
        forwarding: the forwarders of the entities that this process leads.
        membership: the other live bridges.
        poison: the counts of input that could not be handled.
        reconciler: keeps RabbitMQ in line with the definitions.
        state: the engine's health.
        findings: the features of Service Bus that this RabbitMQ lacks, by the last `apply`.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        management: Management,
        *,
        name: str = "busbridge",
        scheduled: Callable[[str], int | None] = lambda entity: None,
        clock: Callable[[], int] = now_ms,
        accessed: LedMs = lambda front, key: NOT_LED,
        waiting: WaitingHere = lambda entity, number, count: None,
        administer: Administer | None = None,
        session_shards: int = model.SESSION_SHARDS_DEFAULT,
        owns_vhost: bool = False,
        supervisor: Supervisor | None = None,
    ):
        self._session_shards = session_shards
        self._endpoint = endpoint
        self._management = management
        self._name = name
        self._tasks = Tasks()
        self._supervisor = supervisor = supervisor or Supervisor()
        self._standing: list[Standing] = []
        self.counters = Counters()
        self.poison = Poison()
        self.directory = Directory(management, self.poison)
        self.findings: tuple[Finding, ...] = ()
        self._sender = Sender(endpoint, name=f"{name} publishing", supervisor=supervisor)

        def on_missing(path: str) -> None:
            self.reconciler.complete(path)

        self._turn = Turn()
        self._connections = ConsumerConnections(
            endpoint, name=f"{name} consuming", on_up=self._on_up, supervisor=supervisor
        )
        self._locks = LockTable(lambda owner, holding: self._settling.expire(owner, holding))
        self._settlements = Settlements(self._connections, self._sender, supervisor)
        departure = Departure(self._sender, self.counters, self.poison, on_missing)
        services = Services(
            self._connections,
            self._sender,
            departure,
            self._locks,
            self.counters,
            self._settlements,
            on_missing,
            supervisor,
            lambda queue: self.state.note_made_again(in_words(queue)),
        )
        self._sending = Sending(services)
        self._deferral = Deferral(services)
        self._settling = Settling(services, self._deferral.defer)
        bridges = Bridges(management, self._locks)
        self._sessions = Accepting(
            services,
            on_undeliverable=self._on_undeliverable,
            definition=self._sessional,
            deferred=DeferredLocks(self.settle, self.renew_locks),
            capabilities=lambda: self.capabilities,
            consumes_once=lambda: self._is_clustered and not self.capabilities.nack_counts,
            bridges=bridges,
        )
        self._clients = Clients(
            self,
            self._sender.answer,
            partial(is_there, self._connections),
            supervisor,
        )
        self._peers = Peers(
            self._sender,
            self._settling.settle,
            self._settling.renew,
            self._deferral.show,
            lambda paths: self.counting.held(paths),
            lambda paths: self.counting.scheduled(paths),
            lambda paths: self._usage.accessed_ms(paths),
            lambda paths: self._usage.answer(paths, self.directory.find),
            self._sessions.carry_out,
            waiting,
            self._clients.carry_out,
            administer or _not_administered,
        )
        self._sessions.introduce(self._peers)
        self._notifications = Notifications(services, lambda: self.reconciler.wake(), self._on_told)
        self.membership = Membership(
            Standbys(os.urandom(16)), self._peers, self._notifications, self._locks
        )
        self._receiving = Receiving(
            services, self._turn, lambda path: self._usage.note_access(path)
        )
        self._deferred = DeferredReceiving(self._deferral, services, self._peers, self.settle)
        self._usage = Usage(
            services,
            lambda: self._receiving.open_paths | self._sessions.open_paths,
            clock,
            accessed,
        )
        self.disposal = Disposal(
            lambda: self.administration, bridges, self._connections, self._sending, self._peers
        )
        self.counting = Counting(
            services,
            management=management,
            bridges=bridges,
            receiving=self._receiving,
            deferral=self._deferral,
            sessions=self._sessions,
            peers=self._peers,
            of_clients=self._clients.holds.of,
            scheduled=scheduled,
            accessed=self._usage.accessed_ms,
            waiting_here=waiting,
        )
        self.browsing = Browsing(
            services,
            waiting=self.counting.waiting,
            held=lambda path: self.counting.held_anywhere([path]),
            listed=self._deferral.listed,
            on_first=lambda path: self._notifications.tell(PEEKED, EntityPath(path)),
        )
        self.forwarding = Forwarding(
            partial(
                Forwarder,
                services=services,
                receiving=self._receiving,
                sending=self._sending,
                find=partial(_find, self),
            )
        )
        self._unmet = UnmetSettings(lambda: self.capabilities)
        self.state = State(services, self._receiving, self._sessions, self._unmet)
        self._policies = policies = Policies(
            management,
            lambda: self.directory.namespace,
            self.state.note_made_again,
            owns_vhost=owns_vhost,
        )
        self._dead_letters = DeadLettersAgain(self._connections, self._sender)
        own = OwnBindings(self._connections, (self._notifications, self._peers))
        self.reconciler = Reconciler(
            self.directory,
            management,
            self._connections,
            self.state,
            lambda: self.capabilities,
            policies,
            self._sending,
            session_shards,
            lambda: self.administration,
            Upkeep(
                *(management, self.state, self.directory),
                *(lambda: self.capabilities, own, bridges),
                on_letters=partial(_publish_again, self.directory, self._dead_letters),
            ),
            own.bind,
        )
        self._capabilities: Capabilities | None = None
        self._is_clustered = False
        self._administration: Administration | None = None

    def __repr__(self) -> str:
        return (
            f"RabbitNamespace({self._name!r}, {self._receiving!r}, "
            f"{len(self._locks)} locks, {self.state!r})"
        )

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of RabbitMQ's version; known after `start`."""
        assert self._capabilities is not None, "not started"
        return self._capabilities

    @property
    def administration(self) -> Administration:
        """The verbs that change entities; available after `start`."""
        assert self._administration is not None, "not started"
        return self._administration

    async def start(self) -> None:
        """Connect, and read the definitions.

        Raises:
            BrokerError: RabbitMQ or its management API cannot be reached, or refuses the login.
            UnsupportedVersion: RabbitMQ is older than 4.0.
        """
        overview, limit_bytes = await asyncio.gather(
            self._management.overview(), rabbitmq_bytes_max(self._endpoint)
        )
        self._capabilities = Capabilities.served(overview["rabbitmq_version"])
        if limit_bytes is not None:
            self._capabilities = replace(self._capabilities, message_bytes_max=limit_bytes)
        self._is_clustered = await self._management.is_cluster()
        self._receiving.start(self._capabilities, is_clustered=self._is_clustered)

        def take_tier(changes: Changes) -> None:
            self._sending.tier = changes.namespace.tier

        for on_change in (
            take_tier,
            self._unmet.follow,
            self._deferral.follow,
            self._sessions.follow,
            self._receiving.follow,
            self._settlements.follow,
            self.browsing.follow,
            self._usage.follow,
            self.forwarding.follow,
        ):
            self.directory.follow(on_change)
        self._sending.tier = self.directory.tier
        self._sending.message_bytes_max = self._capabilities.message_bytes_max

        def on_administered(path: str) -> None:
            self.reconciler.note(path)
            self._sending.note_changed(path)
            self._notifications.tell(ENTITY_CHANGED, EntityPath(path))

        self._administration = Administration(
            self.directory,
            self._management,
            self._connections,
            self._capabilities,
            self._policies,
            on_administered,
            self._session_shards,
        )
        await self.directory.read()
        self._sender.start()
        self._connections.start()
        self._standing = [
            self._supervisor.keep("definitions", self.reconciler.follow),
            self._supervisor.keep("definitions of bridges", self.reconciler.follow_bridges),
            self._supervisor.keep("usage", self._usage.run),
        ]
        await self._supervisor.until(self._sender.ready.wait())
        await self._supervisor.until(self._connections.ready.wait())

    async def apply(
        self, namespace: model.Namespace, on_made: OnProgress = lambda made, count: None
    ) -> None:
        """Create and update entities; all other entities stay as they are.

        Args:
            on_made: called with the numbers of RabbitMQ objects that are made, and of all to be
                made.

        Raises:
            EntityConflict: an entity, or an object of RabbitMQ, exists with other settings that
                cannot be changed.
            BrokerError: RabbitMQ refuses something.
        """
        self.findings = await self.reconciler.apply(namespace, on_made)
        self._notifications.tell(CHANGED, EntityPath(""))

    async def close(self) -> None:
        """Close all parts; locked and buffered messages return to their queues."""
        await self.forwarding.close()
        await self._receiving.end(self._locks.end_all())
        self._locks.close()
        await self._receiving.close()
        await self._deferral.close()
        self._clients.close()
        await self._sessions.close()
        await self._settlements.close()
        self._tasks.cancel()
        await self._dead_letters.close()
        for each in self._standing:
            each.task.cancel()
        running = (*self._tasks, *(each.task for each in self._standing))
        await asyncio.gather(*running, return_exceptions=True)
        await asyncio.gather(self._sender.close(), self._connections.close())

    def entity(self, path: EntityPath) -> model.Entity:
        """Return the definition of an entity."""
        return self.directory.entity(path)

    def send_entity(self, path: EntityPath) -> model.SendEntity:
        """Return the definition of an entity to send to."""
        return self.directory.send_entity(path)

    def message_bytes_max(self, path: EntityPath) -> int:
        """Return the size of the largest message that may be sent to an entity."""
        return self._sending.limit_bytes(self.directory.send_entity(path))

    def receive_entity(self, path: EntityPath) -> model.ReceiveEntity:
        """Return the definition of an entity to receive from."""
        return self.directory.receive_entity(path)

    async def send(self, path: EntityPath, batch: Sequence[Outgoing]) -> None:
        """Store all messages or none; return when RabbitMQ has confirmed them."""
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.begin_sending(path, batch, partial(resolve, stored))
        await stored

    def begin_sending(self, path: EntityPath, batch: Sequence[Outgoing], done: OnSent) -> None:
        """Store all messages or none; `done` is called once with the outcome."""
        try:
            self._sending.begin(self.directory.send_entity(path), batch, done)
        except ServiceBusError as error:
            done(error)

    async def schedule(self, path: EntityPath, batch: Sequence[Outgoing]) -> list[int]:
        """Store messages for later; return their sequence numbers."""
        entity = self.directory.send_entity(path)
        self._usage.note_access(path)
        return await self._sending.schedule(entity, batch)

    async def cancel_scheduled(self, path: EntityPath, numbers: Sequence[int]) -> None:
        """Remove scheduled messages."""
        entity = self.directory.send_entity(path)
        self._usage.note_access(path)
        await self._sending.cancel(entity, numbers)

    def note_full(self, entity: str) -> None:
        """Refuse sends to an entity at all bridges: its queue has refused a sequencer's publish."""
        self._sending.note_full(entity)
        self._notifications.tell(FULL, EntityPath(entity))

    def open_receiver(
        self, path: EntityPath, *, mode: ReceiveMode, deliver: Callable[[Received], None]
    ) -> QueueReceiver:
        """Return a receiver without credit."""
        return self._receiving.open(path, self.directory.receivable(path), mode, deliver)

    async def accept_session(
        self,
        path: EntityPath,
        session_id: str | None,
        *,
        mode: ReceiveMode,
        deliver: Callable[[Received], None],
        on_lost: Callable[[ServiceBusError], None],
        timeout_s: float,
    ) -> SessionReceiver:
        """Lock a session and return its receiver, without credit."""
        return await self._sessions.accept(
            self._sessional(path),
            session_id,
            mode=mode,
            deliver=deliver,
            on_lost=on_lost,
            timeout_s=timeout_s,
        )

    async def renew_session_lock(self, path: EntityPath, session_id: str) -> int:
        """Give a session's lock its full duration from now; return its new end (UTC ms)."""
        return await self._sessions.renew(self._sessional(path), session_id)

    async def session_state(self, path: EntityPath, session_id: str) -> bytes | None:
        """Return the state that was stored with a session."""
        return await self._sessions.state(self._sessional(path), session_id)

    async def set_session_state(
        self, path: EntityPath, session_id: str, state: bytes | None
    ) -> None:
        """Store a session's state; `None` clears it."""
        await self._sessions.store(self._sessional(path), session_id, state)

    async def list_sessions(
        self, path: EntityPath, *, updated_after_ms: int | None, skip: int, top: int
    ) -> list[str]:
        """Return the ids of sessions."""
        entity = self._sessional(path)
        await self._sending.catch_up(entity.front)
        found = await self._sessions.sessions(entity, updated_after_ms)
        return found[skip : skip + top]

    def describe(self, path: EntityPath) -> bytes:
        """Return an entity's description for the library's clients, and note its use."""
        entity = self.directory.entity(path)
        self._usage.note_access(path)
        return description.encode(
            entity,
            rabbitmq_version=".".join(map(str, self.capabilities.version)),
            rabbitmq_bytes_max=self.capabilities.message_bytes_max,
            is_clustered=self._is_clustered,
            tier=self.directory.tier,
            is_peeked=not isinstance(entity, model.Topic)
            and self._settlements.is_told(names.active_queue(entity.path)),
            full="" if isinstance(entity, model.Subscription) else self._sending.full(entity),
        )

    async def prepare_deferral(self, path: EntityPath) -> None:
        """Make the queue for an entity's deferred messages, if it is missing."""
        try:
            await self._deferral.prepare(self.directory.receive_entity(path))
        except BrokerError as error:
            raise ServerBusy(f"The queue of deferred messages is not there: {error}") from error

    async def receive_deferred(
        self,
        path: EntityPath,
        numbers: Sequence[int],
        mode: ReceiveMode,
        session_id: str | None = None,
    ) -> list[Received]:
        """Return the deferred messages with these sequence numbers."""
        entity = self.directory.receivable(path)
        if session_id is not None:
            await self._sessions.check(self._sessional(path), session_id)
        self._usage.note_access(path)
        received = await self._deferred.receive(path, entity, numbers, mode, session_id)
        if session_id is not None:
            tokens = [each.lock_token for each in received if each.lock_token is not None]
            self._sessions.took_deferred(entity, session_id, tokens)
        return received

    async def delete_messages(
        self, path: EntityPath, count: int, before_ms: int, session_id: str | None = None
    ) -> int:
        """Delete waiting messages, oldest first; return the count of deleted ones."""
        if path.sub_queue is SubQueue.NONE:
            await self._sending.catch_up(self.directory.receivable(path).front)
        if session_id is not None:
            return await self._sessions.delete(self._sessional(path), session_id, count, before_ms)
        entity = self.directory.receivable(path)
        # Before 4.3 RabbitMQ counts every return: so messages are received one by one.
        portion = 1 if self.capabilities.nack_counts else PORTION
        deletion = Deletion(
            path,
            before_ms,
            portion=portion,
            connections=self._connections,
            settle=partial(self._settling.begin, path),
            release=lambda token: self.settle(path, token, Release()),
        )
        opened = partial(self._receiving.open, path, entity, ReceiveMode.PEEK_LOCK)
        return await deletion.run(opened, count)

    async def peek(
        self, path: EntityPath, start: int, count: int, session_id: str | None = None
    ) -> list[Received]:
        """Return messages from a sequence number on, without locking any."""
        entity = self.directory.entity(path)
        if entity.status is model.EntityStatus.DISABLED:
            raise EntityDisabled(texts.disabled(entity.path, for_sends=False))
        self._usage.note_access(path)
        return await self.browsing.peek(path, entity, start, count, session_id)

    async def settle(self, path: EntityPath, lock_token: UUID, disposition: Disposition) -> None:
        """Settle a locked message; the lock may be another bridge's."""
        self._usage.note(path)
        if self._locks.is_own(lock_token):
            await self._settling.settle(path, lock_token, disposition)
        else:
            try:
                await self._peers.settle(path, lock_token, disposition)
            except ServiceBusError as error:
                raise refusal(error) from error

    def begin_settling(
        self, path: EntityPath, lock_token: UUID, disposition: Disposition, done: OnSettled
    ) -> None:
        """Settle a locked message; settlements begin in the order of the calls."""
        if self._locks.is_own(lock_token):
            self._usage.note(path)
            self._settling.begin(path, lock_token, disposition, done)
        else:
            settling = self.settle(path, lock_token, disposition)
            self._tasks.start(_answered(settling, done))

    def flush(self) -> None:
        """Do now the work that was collected for the end of this turn of the event loop."""
        self._turn.run()
        self._connections.pool.flush()

    async def renew_locks(self, path: EntityPath, lock_tokens: Sequence[UUID]) -> list[int]:
        """Give each lock its full duration from now."""
        self._usage.note(path)
        if all(self._locks.is_own(token) for token in lock_tokens):
            return self._settling.renew(path, lock_tokens)
        return [
            self._settling.renew(path, [token])[0]
            if self._locks.is_own(token)
            else await self._peers.renew(path, token)
            for token in lock_tokens
        ]

    def _sessional(self, path: EntityPath) -> model.ReceiveEntity:
        """Return the definition of an entity that requires sessions, and note its use."""
        entity = self.directory.receivable(path)
        if not entity.requires_session or path.sub_queue is not SubQueue.NONE:
            raise NotAllowed(texts.SESSION_ON_PLAIN_ENTITY)
        self._usage.note_access(path)
        return entity

    def _on_undeliverable(self, path: EntityPath, token: UUID, error: Undeliverable) -> None:
        """Dead-letter a session's message that no client can have: else it would come again."""

        async def refuse() -> None:
            with suppress(ServiceBusError):  # it comes again, to its session's next receiver
                refused = DeadLetter(reason=MALFORMED_MESSAGE, description=str(error))
                await self.settle(path, token, refused)

        self._tasks.start(refuse())

    async def _on_up(self, connection: Connection) -> None:
        """Consume this bridge's own queue, and notifications, on a new extra connection."""
        await self._peers.listen(connection, self._locks.rename())
        await self._notifications.listen(connection)
        self.membership.listened()

    def _on_told(self, kind: str, path: EntityPath) -> None:
        """Handle a notification: an entity was changed or peeked, or its queue is full."""
        if kind == PEEKED:
            self._settlements.hear(path.entity)
            return
        if kind == ENTITY_CHANGED:
            self._sending.note_changed(path.entity)
            self.reconciler.wake_for(path.entity)
        else:
            self._sending.note_full(path.entity)


def _publish_again(
    directory: Directory, dead_letters: DeadLettersAgain, path: str, since_ms: int
) -> None:
    """Publish again what a dead-letter queue may lack, whatever the entity's status is."""
    entity = directory.known(path)
    if isinstance(entity, model.Queue | model.Subscription):
        dead_letters.begin(entity, since_ms)


async def _answered(settling: Awaitable[None], done: OnSettled) -> None:
    """Call `done` with the outcome of a settlement."""
    try:
        await settling
    except ServiceBusError as error:
        done(error)
    else:
        done(None)


async def _find(namespace: RabbitNamespace, name: str, is_doubtful: bool) -> model.Entity | None:
    """Return an entity as known, or, if that is doubtful, as read from RabbitMQ now."""
    if is_doubtful:
        return await namespace.administration.read(name)
    return namespace.directory.find(name)


async def _not_administered(request: Request) -> Response:
    raise NotImplementedHere("This process administers no entities.")
