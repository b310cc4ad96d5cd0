"""All of a bridge but its gateway: RabbitMQ, engine, sidecar, health and metrics in one process.

The parts start in that order and stop in reverse: clients finish what they have (`--drain`), no new
work, operations under way settle, then the connections close. Every step of stopping has a
deadline; after the drain the whole ends within five seconds.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from bridge.access.access import Access
from bridge.admin.operations import Operations
from bridge.admin.questions import Questions
from bridge.admin.server import AdminServer
from bridge.admin.service import Service
from bridge.background.retry import retry
from bridge.background.supervisor import Supervisor
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import BrokerError, ConnectionLost, NotFound
from bridge.broker.management.api import Management
from bridge.broker.reconnect import is_permanent
from bridge.cli.build import BUILD
from bridge.cli.config import applied
from bridge.cli.measures import families
from bridge.cli.overdue import Overdue
from bridge.cli.progress import StartProgress
from bridge.cli.rabbitmq import rabbitmq_of
from bridge.cli.settings import Settings
from bridge.cli.stalls import Stalls
from bridge.cli.stopping import Stopping
from bridge.engine.administration.directory import Directory
from bridge.engine.namespace import RabbitNamespace
from bridge.gateway.departures import QUIET_S, Departures
from bridge.gateway.server import Gateway
from bridge.model import entity as model
from bridge.sidecar.idle_watch import IdleWatch
from bridge.sidecar.journal_watch import JournalWatch
from bridge.sidecar.leader.leader_state import Companion
from bridge.sidecar.sidecar import Sidecar
from bridge.topology.findings import BY_THE_BRIDGE
from bridge.topology.resources import Finding

_log = logging.getLogger("busbridge.serve")

APPLY_AGAIN_S = 0.5
REACHED_S = 10.0
"""How long a start waits for RabbitMQ once its management API has answered."""

APPLIED_S = 30.0
"""How long a start waits for declared queues that are not up yet, while it makes no others."""


class BridgeParts:
    """A bridge without its gateway.

    Args:
        wanted: the namespace to apply at the start.
        parts: the parts to stop with the bridge, in reverse order.
        management_url: the management page of a private RabbitMQ.

    Attributes:
        namespace: the engine, for the gateway.
        operations: the administration API.
        supervisor: keeps running what is meant to run until the stop.
    """

    def __init__(
        self,
        settings: Settings,
        endpoint: Endpoint,
        management: Management,
        wanted: model.Namespace,
        parts: AsyncExitStack,
        stopping: Stopping,
        supervisor: Supervisor,
        *,
        management_url: str = "",
    ) -> None:
        self._is_private = settings.endpoint is None
        self._host = settings.host_for_clients
        self._drain_s = settings.drain_s
        self._endpoint = endpoint
        self._management = management
        self._management_url = management_url
        self.wanted = wanted
        self._access: Access | None = None
        self._departures: Departures | None = None
        self._sessions_out_s = float("-inf")
        self._parts = parts
        self._stopping = stopping
        self.supervisor = supervisor
        self.namespace = namespace = RabbitNamespace(
            endpoint,
            management,
            scheduled=lambda entity: self._sidecar.scheduled(entity),
            accessed=lambda front, key: self._idle_watch.accessed_ms(front, key),
            waiting=lambda entity, number, count: self._sidecar.waiting(entity, number, count),
            administer=lambda request: Questions(self.operations).answer(request),
            session_shards=settings.session_shards,
            owns_vhost=settings.owns_vhost,
            supervisor=supervisor,
        )
        self._sidecar = Sidecar(
            endpoint,
            tier=wanted.tier,
            on_full=namespace.note_full,
            on_missing=namespace.reconciler.due.complete,
            poison=namespace.poison,
            companion=Companion(
                namespace.forwarding.lead,
                namespace.forwarding.leave,
                namespace.forwarding.transfer,
            ),
            supervisor=supervisor,
            whole=namespace.reconciler.due.whole,
            looked=namespace.reconciler.due.looked,
            standbys=namespace.membership.standbys,
        )
        namespace.membership.on_changed = self._sidecar.choice.wake
        self._sidecar.choice.on_changed = namespace.membership.wake
        namespace.reconciler.upkeep.leading = self._sidecar.routes
        namespace.half_made.silent.append(lambda: self._sidecar.silent)
        self._idle_watch = IdleWatch(self._sidecar, namespace.disposal)
        namespace.directory.follow(self._sidecar.follow)
        namespace.directory.follow(self._idle_watch.follow)
        self.operations = Operations(lambda: namespace.administration, namespace.counting)

    def guard(self, access: Access, follow: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
        """Have the keys of an access object fetched until the stop, and its faults in health.

        Args:
            follow: follows the changes of its rules file, if it has one.
        """
        self._access = access
        access.start(self.supervisor)
        self.on_stop(access.stop)
        if follow is not None:
            following = self.supervisor.keep("rules file", follow)
            self._parts.push_async_callback(self._stopping.end, following.task)

    async def start(
        self,
        listener: socket.socket,
        *,
        gateway: Gateway | None = None,
        service: Service | None = None,
    ) -> None:
        """Start all parts; return when messages can be numbered.

        Args:
            listener: the socket of health and metrics.
            gateway: the gateway to include in the metrics.
            service: the administration API beside health and metrics.

        Raises:
            BrokerError, ServiceBusError: RabbitMQ refuses the login, or an entity conflicts.
        """
        namespace, sidecar = self.namespace, self._sidecar
        began_s = time.monotonic()
        stalls = Stalls()
        stalls.start()
        self._parts.callback(stalls.stop)
        admin = AdminServer(
            reasons=self._reasons,
            warnings=self._warnings,
            families=lambda: families(
                namespace, sidecar, gateway, stalls, self.supervisor, self._access
            ),
            service=service,
            supervisor=self.supervisor,
        )
        await admin.start(listener)
        self.on_stop(admin.close)
        self.on_stop(namespace.close)
        await namespace.start()
        others = self.supervisor.keep("other bridges", namespace.membership.run)
        self._parts.push_async_callback(self._stopping.end, others.task)
        if gateway is not None:
            self._departures = Departures(gateway, namespace.leaving.is_locked)
        progress = StartProgress()
        # A RabbitMQ that has just started may not have all its queues up yet.
        await retry(
            partial(namespace.apply, self.wanted, progress.note),
            wait_s=APPLY_AGAIN_S,
            retryable=lambda error: _may_pass(error) and progress.still_s < APPLIED_S,
        )
        _log_findings(namespace.findings)
        await self._work()
        print(f"start: entities and sidecar: {time.monotonic() - began_s:.1f} s", flush=True)

    async def _work(self) -> None:
        sidecar, keep = self._sidecar, self.supervisor.keep
        working = keep("sidecar", sidecar.run, may_end=lambda: sidecar.is_stopping)
        self._parts.push_async_callback(self._stopping.ended, working.task)
        self.on_stop(sidecar.stop)
        for watching in (
            keep("idle watch", self._idle_watch.run),
            keep("journals", JournalWatch(sidecar, self._management).run),
        ):
            self._parts.push_async_callback(self._stopping.end, watching.task)
        await self.supervisor.until(sidecar.connected.wait())

    def on_stop(self, stop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Register a part's stop, which runs before the stops of earlier parts."""
        self._parts.push_async_callback(self._stopping.within, stop)

    @property
    def rabbitmq_ports(self) -> tuple[int, ...]:
        """The AMQP ports of RabbitMQ's hosts."""
        return tuple(port for _, port in self._endpoint.hosts)

    async def ready(self, listener: socket.socket) -> str:
        """Return the beginning of the `ready` line: addresses and versions.

        Of a private RabbitMQ it has the management page and its login as well.
        """
        version = (await self._management.overview()).get("rabbitmq_version", "?")
        page = ""
        if self._is_private:
            login = f"{self._endpoint.user}/{self._endpoint.password}"
            page = f"management={self._management_url} login={login} "
        return (
            f"ready admin=http://{self._host}:{listener.getsockname()[1]} "
            f"rabbitmq={self._endpoint} {page}version={version} build={BUILD}"
        )

    def _reasons(self) -> list[str]:
        """Return why the bridge is not ready; a queue that gives no answer is a warning."""
        silent = {each.name for each in (*self.namespace.state.silent, *self._sidecar.silent)}
        stopping = ["The bridge is stopping."] if self._stopping.is_asked else []
        return [
            *stopping,
            *self.namespace.state.reasons,
            *self._sidecar.reasons,
            *self.supervisor.reasons,
            *(self._access.reasons if self._access is not None else ()),
            *self.supervisor.waits.sentences(silent | self._sidecar.leaderless.keys()),
        ]

    def _warnings(self) -> list[str]:
        """Return the warnings about single entities, and about work that was begun again."""
        return [
            *self.namespace.state.warnings,
            *(each.sentence for each in self._sidecar.silent),
            *self.supervisor.warnings,
            *(self._access.warnings if self._access is not None else ()),
        ]

    async def serve(self) -> None:
        """Work until the process is told to stop, then until clients have finished what they have.

        Raises:
            Exception: the error of work after which going on makes no sense.
        """
        self._stopping.started()
        await self.supervisor.until(self._stopping.wait())
        if self._drain_s:
            self.namespace.leaving.begin()
            await self._stopping.drain(self._is_draining, self._drain_s)

    def _is_draining(self, now_s: float) -> bool:
        have_locked = self._departures is not None and self._departures.look(now_s)
        if self.namespace.leaving.has_sessions_out:
            self._sessions_out_s = now_s
        return have_locked or now_s - self._sessions_out_s < QUIET_S


@asynccontextmanager
async def bridge_of(
    settings: Settings,
    config: model.Namespace | None,
    supervisor: Supervisor | None = None,
    overdue: Overdue | None = None,
) -> AsyncIterator[BridgeParts]:
    """Yield a bridge before its start; at the end all its parts have stopped.

    Args:
        config: entities to create or update.
        supervisor: keeps running what is meant to run until the stop.
        overdue: ends the process when its stop takes too long.

    Raises:
        SettingsError: no RabbitMQ is given or installed.
        BrokerError: RabbitMQ's management API refuses, or cannot be reached.
    """
    stopping, supervisor = Stopping(overdue), supervisor or Supervisor()
    asyncio.get_running_loop().set_exception_handler(supervisor.note_unhandled)
    async with AsyncExitStack() as parts:
        parts.push_async_callback(stopping.end_rest)
        endpoint, management_urls = await parts.enter_async_context(
            rabbitmq_of(settings, stopping, supervisor)
        )
        management = await parts.enter_async_context(Management(endpoint, management_urls))
        directory = Directory(management)
        await directory.read()
        await _reach(endpoint)
        wanted = applied(directory.namespace, config, settings.tier)
        yield BridgeParts(
            *(settings, endpoint, management, wanted, parts, stopping, supervisor),
            management_url=next(iter(management_urls), ""),
        )


async def _reach(endpoint: Endpoint) -> None:
    """Connect to RabbitMQ once, after its management API has answered.

    Raises:
        ConnectionLost: it does not answer; or, of this class, what it refuses.
    """
    try:
        # One that is just starting serves its management API a moment before.
        connection = await retry(
            partial(Connection.open, endpoint, name="busbridge start"),
            wait_s=APPLY_AGAIN_S,
            retryable=lambda error: isinstance(error, ConnectionLost) and not is_permanent(error),
            total_s=REACHED_S,
        )
    except ConnectionLost as error:
        if is_permanent(error):
            raise
        text = f"{error}. Its management API does: look at host and port in --rabbitmq-url"
        raise ConnectionLost(text=text) from error
    await connection.close()


def _may_pass(error: BaseException) -> bool:
    """Whether a start may succeed later: queues are not up yet, or RabbitMQ is busy (541)."""
    return isinstance(error, BrokerError) and (error.is_retryable or isinstance(error, NotFound))


def _log_findings(findings: Sequence[Finding]) -> None:
    """Log this RabbitMQ's differences from Service Bus, once, at the start.

    Gaps that the bridge fills are no differences.
    """
    for finding in findings:
        if finding.grade != BY_THE_BRIDGE:
            _log.warning(
                "rabbitmq.finding entity=%s property=%s grade=%s message=%r",
                *(finding.entity, finding.property, finding.grade, finding.message),
            )
