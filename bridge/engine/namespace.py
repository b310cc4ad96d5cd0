"""The engine's namespace on RabbitMQ: the engine's parts, composed to the gateways' interface."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from uuid import UUID

from bridge.background.supervisor import Standing, Supervisor
from bridge.background.tasks import Tasks
from bridge.broker.connection.address import is_there
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import BrokerError
from bridge.broker.management.api import Management
from bridge.broker.outcome import resolve
from bridge.engine import texts
from bridge.engine.administration.bulk_declaration import OnProgress
from bridge.engine.administration.changes import Administration
from bridge.engine.administration.dead_letters_again import DeadLettersAgain
from bridge.engine.administration.directory import Directory
from bridge.engine.administration.disposal import Disposal
from bridge.engine.administration.due_checks import DueChecks
from bridge.engine.administration.first_transactions import FirstTransactions
from bridge.engine.administration.half_made_queues import HalfMadeQueues
from bridge.engine.administration.notifications import (
    CHANGED,
    ENTITY_CHANGED,
    FULL,
    PEEKED,
    Notifications,
)
from bridge.engine.administration.policies import Policies
from bridge.engine.administration.reconciler import Reconciler
from bridge.engine.administration.requests import AdministrationRequests
from bridge.engine.administration.unmet_settings import UnmetSettings
from bridge.engine.administration.upkeep import OwnBindings, Upkeep
from bridge.engine.administration.usage import NOT_LED, LedMs, Usage
from bridge.engine.api import (
    DeadLetter,
    Disposition,
    OnSent,
    Received,
    ReceiveMode,
    Release,
    SessionReceiver,
    Undeliverable,
)
from bridge.engine.bridge_watch import BridgeWatch
from bridge.engine.bridges import Bridges
from bridge.engine.browse.browsing import Browsing
from bridge.engine.browse.page import Page
from bridge.engine.browse.settlements import UnwrittenSettlements
from bridge.engine.client_holds import ClientHolds
from bridge.engine.clients import Clients
from bridge.engine.clock import now_ms
from bridge.engine.count_questions import WaitingHere
from bridge.engine.counters import Counters
from bridge.engine.counting import Counting
from bridge.engine.deferral.entities import Deferral
from bridge.engine.deferral.receiving import DeferredReceiving
from bridge.engine.definition_followers import DefinitionFollowers, HoldFollowers
from bridge.engine.forwarding.forwarder import Forwarder
from bridge.engine.forwarding.forwarding import Forwarding
from bridge.engine.forwarding.transfer_forwarder import (
    TransferForwarder,
    make_dead_letter_queue,
)
from bridge.engine.held_entities import HeldEntities
from bridge.engine.leaving import Leaving
from bridge.engine.membership import Membership
from bridge.engine.numbered_locks import NumberedLocks
from bridge.engine.peers import Peers
from bridge.engine.poison import Poison
from bridge.engine.rabbitmq import RabbitMQ
from bridge.engine.receiving.connections import ConsumerConnections
from bridge.engine.receiving.deletion import PORTION, Deletion
from bridge.engine.receiving.numbered_locking import NumberedLocking
from bridge.engine.receiving.receiver import QueueReceiver
from bridge.engine.receiving.receivers import Receiving
from bridge.engine.receiving.turn import Turn
from bridge.engine.sending.importing import Importing
from bridge.engine.sending.requests import Sending
from bridge.engine.sending.sender import Sender
from bridge.engine.services import Services
from bridge.engine.sessions.accepting import Accepting
from bridge.engine.sessions.deferred import DeferredLocks
from bridge.engine.sessions.imported_states import ImportedStates
from bridge.engine.settlement.hand_over import BridgeHandOver
from bridge.engine.settlement.locks_anywhere import LocksAnywhere
from bridge.engine.settlement.locktable import ProcessLocks
from bridge.engine.settlement.settling import Settling
from bridge.engine.state import Health, MadeAgain
from bridge.engine.transactions.inquirer import BridgeInquirer
from bridge.engine.transactions.pins import Pins, inquire
from bridge.engine.transactions.pins_anywhere import PinsAnywhere
from bridge.engine.transactions.reports import CarriedOutReports
from bridge.engine.transactions.state_pins import StatePins
from bridge.engine.transactions.transacting import Transacting
from bridge.machine.browse.counted_dead_letters import LookedThrough
from bridge.machine.inbox.arrival import MALFORMED_MESSAGE
from bridge.machine.inbox.standbys import Standbys
from bridge.message.departure import Departure
from bridge.message.envelopes import Outgoing
from bridge.model import entity as model
from bridge.model.availability import disabled_text
from bridge.model.errors import (
    EntityDisabled,
    NotAllowed,
    NotImplementedHere,
    ServerBusy,
    ServiceBusError,
)
from bridge.model.forwarding import target_of
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import description, names
from bridge.topology.capabilities import Capabilities
from bridge.topology.resources import Finding
from bridge.wire.administration import Administer, Request, Response
from bridge.wire.own_operations import MOVE_SCHEDULED_MESSAGES

MOVED_S = 1.0
"""How long `close` waits for RabbitMQ to confirm what leaves its queues: the process has 3 s for
all of its end (`cli.stopping`)."""

LOOK_S = 0.02

log = logging.getLogger(__name__)


class RabbitNamespace:
    """A namespace whose entities are objects of RabbitMQ; see `api.NamespaceVerbs`.

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
        importing: stores messages under the numbers that they had elsewhere.
        counters: the totals for metrics.
        counting: counts messages.
        disposal: deletes idle entities.
        forwarding: the forwarders of the entities that this process leads.
        leaving: what is still locked for receivers when the process is about to stop.
        membership: the other live bridges.
        poison: the counts of input that could not be handled.
        reconciler: keeps RabbitMQ in line with the definitions.
        state: the engine's health.
        transactional: awaited before the envelope of a commit: its entities may have transactions.
        findings: the features of Service Bus that this RabbitMQ lacks, by the last `apply`.
        transactions: the verbs of transactions.
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
        self._endpoint = endpoint
        self._management = management
        self._name = name
        self._tasks = Tasks()
        self._supervisor = supervisor = supervisor or Supervisor()
        self._standing: list[Standing] = []
        self.findings: tuple[Finding, ...] = ()

        # What is known, and noted, of everything.
        self._rabbitmq = rabbitmq = RabbitMQ(endpoint, management)
        self.counters = Counters()
        self.poison = Poison()
        self.directory = Directory(management, self.poison)
        due, made_again = DueChecks(), MadeAgain()
        self._turn = Turn()

        # What all verbs are made of.
        self._sender = Sender(endpoint, name=f"{name} publishing", supervisor=supervisor)
        self._connections = ConsumerConnections(
            endpoint, name=f"{name} consuming", on_up=partial(_listen, self), supervisor=supervisor
        )
        self._locks = ProcessLocks(lambda owner, holding: self._settling.expire(owner, holding))
        self._settlements = UnwrittenSettlements(self._connections, self._sender, supervisor)
        hand_over = BridgeHandOver(self._sender, due.complete)
        self._departure = Departure(hand_over, self.counters, now_ms)
        self._reports = CarriedOutReports(self._sender)
        self._inquirer = BridgeInquirer(
            self._sender,
            supervisor.waits,
            self.counters,
            lambda locked, disposition, done: self._settling.carry_out(locked, disposition, done),
            self._reports.note,
            due.complete,
        )
        self._peers = Peers(self._sender)
        self._watch = watch = BridgeWatch(self._peers, supervisor)
        services = Services(
            self._connections,
            self._sender,
            self._departure,
            self.poison,
            self._locks,
            self.counters,
            self._settlements,
            due.complete,
            supervisor,
            made_again.note_queue,
            self._inquirer,
            watch,
        )

        # The other bridges.
        bridges = Bridges(management, self._locks, lambda: self.membership.heard)
        self._usage = Usage(services, clock, accessed)
        self._usage.answer(self._peers, self.directory.find)
        AdministrationRequests(self._peers, administer or _not_administered)

        # The verbs.
        self._sending = Sending(services)
        self._deferral = Deferral(services)
        self._settling = Settling(services, self._deferral.defer)
        self._locks_anywhere = LocksAnywhere(
            self._peers, self._locks, self._settling, self._deferral.show, self._usage.note
        )
        self.begin_settling = self._locks_anywhere.begin  # each message: no call in between
        self._sessions = Accepting(
            services,
            self._peers,
            on_undeliverable=self._on_undeliverable,
            definition=self._sessional,
            deferred=DeferredLocks(self._locks_anywhere.settle, self._locks_anywhere.renew),
            capabilities=rabbitmq.capabilities,
            consumes_once=rabbitmq.consumes_once,
            bridges=bridges,
        )
        states = ImportedStates(
            self.directory.receive_entity, self._sessions.owners, self.check_known
        )
        self.importing = Importing(self.directory, self._sending, self.check_known, states)
        self.leaving = Leaving(self._locks, self._sessions.owners)
        self._receiving = Receiving(services, self._turn, self._usage.note_access)
        self._numbered = NumberedLocking(
            services,
            self._receiving,
            self.peek,
            lambda path, number: self.browsing.may_have(path, number),
            self.directory.receivable,
        )
        self._usage.watch(lambda: self._receiving.open_paths | self._sessions.open_paths)
        self._deferred = DeferredReceiving(self._deferral, services, self._locks_anywhere)
        holds = ClientHolds()
        self.counting = Counting(
            services,
            management=management,
            bridges=bridges,
            receiving=self._receiving,
            deferral=self._deferral,
            sessions=self._sessions,
            peers=self._peers,
            of_clients=holds.of,
            scheduled=scheduled,
            accessed=self._usage.accessed_ms,
            waiting_here=waiting,
        )
        self._notifications = Notifications(services, due.wake, partial(_hear, self))
        self.membership = Membership(
            Standbys(os.urandom(16)),
            self._peers,
            self._notifications,
            self._locks,
            bridges.others,
        )
        self.browsing = Browsing(
            services,
            waiting=self.counting.scheduled_numbers.waiting,
            waiting_now=self.counting.scheduled_numbers.waiting_now,
            held=lambda path: self.counting.held_anywhere([path]),
            held_by_known=lambda path: self.counting.held_by_known([path]),
            listed=self._deferral.listed,
            dead_held=self.counting.dead_held,
            look_through=partial(_look_through, self),
            on_first=lambda path: self._notifications.tell(PEEKED, EntityPath(path)),
        )

        # The entities: changing them, and keeping RabbitMQ in line with them.
        self._unmet = UnmetSettings(rabbitmq.capabilities)
        self._held = HeldEntities()
        self.state = Health(
            services, self._receiving, self._sessions, self._unmet, self._held, made_again
        )
        self._policies = policies = Policies(
            management,
            lambda: self.directory.namespace,
            made_again.note,
            owns_vhost=owns_vhost,
        )
        self._administration = Administration(
            self.directory,
            management,
            self._connections,
            rabbitmq.capabilities,
            policies,
            session_shards,
        )
        self.disposal = Disposal(
            self._administration, bridges, self._connections, self._sending, self._peers
        )
        self._dead_letters = DeadLettersAgain(self._connections, self._sender)
        own = OwnBindings(self._connections, (self._notifications, self._peers))
        self._due = due
        self.reconciler = Reconciler(
            self.directory,
            management,
            self._connections,
            self.state,
            rabbitmq.capabilities,
            policies,
            self._sending,
            session_shards,
            self._administration,
            due,
            Upkeep(
                *(management, self.state, self.directory),
                *(rabbitmq.capabilities, own, bridges),
                on_letters=partial(_publish_again, self.directory, self._dead_letters),
            ),
            own.bind,
        )
        self.half_made = HalfMadeQueues(
            management, self._administration, made_again, lambda: self.state.silent
        )
        followers = DefinitionFollowers(self._peers, bridges.others, self._administration.read)
        self._administration.followed = HoldFollowers(followers).await_all
        self.transactional = FirstTransactions(
            self._administration, self.directory.find, self.check_known, followers
        )
        self._pins = Pins(
            *(self._locks, self._settling, supervisor, watch),
            partial(inquire, self.directory, self._sending),
        )
        self._pins_anywhere = PinsAnywhere(self._peers, self._locks, self._pins, self._usage.note)
        self.transactions = Transacting(
            self.directory,
            self._sending,
            self._pins_anywhere,
            self._reports,
            supervisor,
            self.transactional,
            self.check_known,
            StatePins(self._sessional, self._sessions.owners, self._locks),
        )
        self._administration.on_changed += [
            self.reconciler.note,
            self._sending.note_changed,
            lambda path: self._notifications.tell(ENTITY_CHANGED, EntityPath(path)),
        ]

        # What uses the verbs.
        find = partial(_find, self.directory, self._administration)
        self.forwarding = Forwarding(
            partial(
                Forwarder,
                services=services,
                receiving=self._receiving,
                sending=self._sending,
                find=find,
            ),
            partial(TransferForwarder, services=services, sending=self._sending, find=find),
        )
        self._clients = Clients(
            self,
            self._peers,
            holds,
            self._sender.answer,
            partial(is_there, self._connections),
            supervisor,
        )

    def __repr__(self) -> str:
        return (
            f"RabbitNamespace({self._name!r}, {self._receiving!r}, "
            f"{len(self._locks)} locks, {self.state!r})"
        )

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of RabbitMQ's version; known after `start`."""
        return self._rabbitmq.capabilities()

    @property
    def administration(self) -> Administration:
        return self._administration

    async def start(self) -> None:
        """Connect, and read the definitions.

        Raises:
            BrokerError: RabbitMQ or its management API cannot be reached, or refuses the login.
            UnsupportedVersion: RabbitMQ is older than 4.0.
        """
        await self._rabbitmq.learn()
        self._receiving.start(self.capabilities, is_clustered=self._rabbitmq.is_clustered)
        self._sending.message_bytes_max = self.capabilities.message_bytes_max
        for on_change in (
            self._sending.follow,
            self._unmet.follow,
            self._held.follow,
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
        await self.directory.read()
        self._sender.start()
        self._connections.start()
        self._standing = [
            self._supervisor.keep("definitions", self.reconciler.follow),
            self._supervisor.keep("definitions of bridges", self.reconciler.follow_bridges),
            self._supervisor.keep("usage", self._usage.run),
            self._supervisor.keep("half-made queues", self.half_made.run),
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
        await self.transactions.close()
        await self._pins.close()
        await self._pins_anywhere.close()
        await self._watch.close()
        await self._receiving.end(self._locks.end_all())
        self._locks.close()
        await self._inquirer.close()
        await _moved(self._departure)
        await self._receiving.close()
        await self._deferral.close()
        self._clients.close()
        await self._sessions.close()
        await self._settlements.close()
        await self._locks_anywhere.close()
        self._tasks.cancel()
        await self._dead_letters.close()
        for each in self._standing:
            each.task.cancel()
        running = (*self._tasks, *(each.task for each in self._standing))
        await asyncio.gather(*running, return_exceptions=True)
        await asyncio.gather(self._sender.close(), self._connections.close())

    def entity(self, path: EntityPath) -> model.Entity:
        return self.directory.entity(path)

    def send_entity(self, path: EntityPath) -> model.SendEntity:
        return self.directory.send_entity(path)

    def message_bytes_max(self, path: EntityPath) -> int:
        return self._sending.limit_bytes(self.directory.send_entity(path))

    def receive_entity(self, path: EntityPath) -> model.ReceiveEntity:
        return self.directory.receive_entity(path)

    async def send(self, path: EntityPath, batch: Sequence[Outgoing]) -> None:
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.begin_sending(path, batch, partial(resolve, stored))
        await stored

    def begin_sending(self, path: EntityPath, batch: Sequence[Outgoing], done: OnSent) -> None:
        try:
            self._sending.begin(self.directory.send_entity(path), batch, done)
        except ServiceBusError as error:
            done(error)

    async def begin_sending_each(
        self, path: EntityPath, each: Iterator[Outgoing], done: OnSent
    ) -> None:
        await self._sending.begin_each(partial(self.directory.send_entity, path), each, done)

    async def schedule(
        self, path: EntityPath, batch: Sequence[Outgoing], moved: Sequence[int] | None = None
    ) -> list[int]:
        entity = self.directory.send_entity(path)
        if moved is not None and not self.membership.knows(MOVE_SCHEDULED_MESSAGES):
            raise NotImplementedHere(texts.UNKNOWN_FEATURE.format(feature=MOVE_SCHEDULED_MESSAGES))
        self._usage.note_access(path)
        if moved is not None:
            return await self._sending.reschedule(entity, moved, batch)
        return await self._sending.schedule(entity, batch)

    async def cancel_scheduled(self, path: EntityPath, numbers: Sequence[int]) -> None:
        entity = self.directory.send_entity(path)
        self._usage.note_access(path)
        await self._sending.cancel(entity, numbers)

    def note_full(self, entity: str) -> None:
        """Refuse sends to an entity at all bridges: its queue has refused a sequencer's publish."""
        self._sending.note_full(entity)
        self._notifications.tell(FULL, EntityPath(entity))

    def check_known(self, feature: str) -> None:
        if not self.membership.knows(feature):
            why = texts.UNKNOWN_FEATURE if self.membership.is_listed else texts.UNLISTED
            raise ServerBusy(why.format(feature=feature))

    def open_receiver(
        self, path: EntityPath, *, mode: ReceiveMode, deliver: Callable[[Received], None]
    ) -> QueueReceiver:
        entity = self.directory.receivable(path)
        if path.sub_queue is SubQueue.TRANSFER_DEAD_LETTER:
            self._tasks.start(make_dead_letter_queue(self._connections, entity.path))
        return self._receiving.open(path, entity, mode, deliver)

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
        return await self._sessions.accept(
            self._sessional(path),
            session_id,
            mode=mode,
            deliver=deliver,
            on_lost=on_lost,
            timeout_s=timeout_s,
        )

    async def renew_session_lock(self, path: EntityPath, session_id: str) -> int:
        return await self._sessions.renew(self._sessional(path), session_id)

    async def session_state(self, path: EntityPath, session_id: str) -> bytes | None:
        return await self._sessions.state(self._sessional(path), session_id)

    async def set_session_state(
        self, path: EntityPath, session_id: str, state: bytes | None
    ) -> None:
        await self._sessions.store(self._sessional(path), session_id, state)

    async def list_sessions(
        self, path: EntityPath, *, updated_after_ms: int | None, skip: int, top: int
    ) -> list[str]:
        entity = self._sessional(path)
        await self._sending.catch_up(entity.front)
        found = await self._sessions.sessions(entity, updated_after_ms)
        return found[skip : skip + top]

    def describe(self, path: EntityPath) -> bytes:
        entity = self.directory.entity(path)
        self._usage.note_access(path)
        return description.encode(
            entity,
            rabbitmq_version=".".join(map(str, self.capabilities.version)),
            rabbitmq_bytes_max=self.capabilities.message_bytes_max,
            is_clustered=self._rabbitmq.is_clustered,
            tier=self.directory.tier,
            is_peeked=not isinstance(entity, model.Topic)
            and self._settlements.is_told(names.active_queue(entity.path)),
            full="" if isinstance(entity, model.Subscription) else self._sending.full(entity),
        )

    async def prepare_deferral(self, path: EntityPath) -> None:
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
            waiting=partial(self._receiving.waiting, path),
            connections=self._connections,
            settle=partial(self._settling.begin, path),
            release=lambda token: self.settle(path, token, Release()),
        )
        opened = partial(self._receiving.open, path, entity, ReceiveMode.PEEK_LOCK)
        return await deletion.run(opened, count)

    async def lock_messages(self, path: EntityPath, numbers: Sequence[int]) -> NumberedLocks:
        entity = self.directory.receivable(path)
        if entity.requires_session and path.sub_queue is SubQueue.NONE:
            raise NotAllowed(texts.NUMBERS_OF_SESSIONS.format(entity=path))
        if target_of(entity, path.sub_queue):
            raise NotAllowed(texts.RECEIVER_OF_FORWARDED)
        if self.capabilities.nack_counts:
            raise NotImplementedHere(texts.NUMBERS_NOT_HERE)
        self._usage.note_access(path)
        if not numbers:
            return NumberedLocks(received=(), unavailable=(), unreached=(), missing=())
        if path.sub_queue is SubQueue.NONE:
            await self._sending.catch_up(entity.front)
        return await self._numbered.lock(path, entity, numbers)

    async def peek(
        self, path: EntityPath, start: int, count: int, session_id: str | None = None
    ) -> list[Received]:
        entity = self.directory.entity(path)
        if entity.status is model.EntityStatus.DISABLED:
            raise EntityDisabled(disabled_text(entity))
        self._usage.note_access(path)
        if path.sub_queue is SubQueue.TRANSFER_DEAD_LETTER:
            return await _peek_refused(self, path, start, count)
        return await self.browsing.peek(path, entity, start, count, session_id)

    async def settle(self, path: EntityPath, lock_token: UUID, disposition: Disposition) -> None:
        await self._locks_anywhere.settle(path, lock_token, disposition)

    def flush(self) -> None:
        self._turn.run()
        self._connections.pool.flush()

    async def renew_locks(self, path: EntityPath, lock_tokens: Sequence[UUID]) -> list[int]:
        return await self._locks_anywhere.renew(path, lock_tokens)

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


async def _moved(departure: Departure) -> None:
    """Wait until no message is on its way out of a queue, for `MOVED_S` at most.

    What is given back before its move is confirmed comes again, and has another place, too.
    """
    loop = asyncio.get_running_loop()
    end_s = loop.time() + MOVED_S
    while not departure.is_idle and loop.time() < end_s:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(LOOK_S)


async def _look_through(
    namespace: RabbitNamespace, entity: model.ReceiveEntity
) -> LookedThrough | None:
    """Look which dead letters there are, where that counts no delivery and takes none away."""
    path = EntityPath(entity.path, SubQueue.DEAD_LETTER)
    if namespace.capabilities.nack_counts or target_of(entity, path.sub_queue):
        return None
    return await namespace._numbered.look(path, namespace.directory.receivable(path))


async def _peek_refused(
    namespace: RabbitNamespace, path: EntityPath, start: int, count: int
) -> list[Received]:
    """Return messages that targets of transactions have not taken, from a number on."""
    if namespace.capabilities.nack_counts:
        raise NotImplementedHere(texts.PEEKS_NOT_HERE)
    entity = namespace.directory.receive_entity(path)
    queue = names.received(entity.path, path.sub_queue)
    page = Page(count, None)

    def see(received: Received) -> None:
        if received.sequence_number >= start:
            page.add(received)

    if count and await is_there(namespace._connections, queue):
        await namespace._numbered.show(path, entity, see)
    return page.result()


def _publish_again(
    directory: Directory, dead_letters: DeadLettersAgain, path: str, since_ms: int
) -> None:
    """Publish again what a dead-letter queue may lack, whatever the entity's status is."""
    entity = directory.known(path)
    if isinstance(entity, model.Queue | model.Subscription):
        dead_letters.begin(entity, since_ms)


async def _find(
    directory: Directory, administration: Administration, name: str, is_doubtful: bool
) -> model.Entity | None:
    """Return an entity as known, or, if that is doubtful, as read from RabbitMQ now."""
    return await administration.read(name) if is_doubtful else directory.find(name)


async def _listen(namespace: RabbitNamespace, connection: Connection) -> None:
    """Consume the bridge's own queue, and notifications, on a new extra connection."""
    await namespace._peers.listen(connection, namespace._locks.rename())
    await namespace._notifications.listen(connection)
    namespace.membership.listened()


async def _not_administered(request: Request) -> Response:
    raise NotImplementedHere("This process administers no entities.")


def _hear(namespace: RabbitNamespace, kind: str, path: EntityPath) -> None:
    """Handle a notification: an entity was changed or peeked, or its queue is full."""
    if kind == PEEKED:
        namespace._settlements.hear(path.entity)
        return
    if kind == ENTITY_CHANGED:
        namespace._sending.note_changed(path.entity)
        namespace._due.wake_for(path.entity)
    else:
        namespace._sending.note_full(path.entity)
