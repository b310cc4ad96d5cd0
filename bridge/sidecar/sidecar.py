"""The sidecar: one sequencer for every entity, kept alive while RabbitMQ comes and goes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime

from bridge.broker.boot import node_boot
from bridge.broker.channel import Channel
from bridge.broker.connection import Connection
from bridge.broker.endpoint import Endpoint
from bridge.broker.errors import BrokerError, PublishRefused
from bridge.broker.reconnect import keep_connected
from bridge.engine.clock import now_ms
from bridge.engine.poison import Poison
from bridge.model.entity import Namespace, Queue, Tier
from bridge.sidecar.arrival_buffer import PrefetchChanged
from bridge.sidecar.lapsed import return_lapsed
from bridge.sidecar.life import Life
from bridge.sidecar.meters import Meters
from bridge.sidecar.office import Office
from bridge.topology import names

SETTLE_S = 1.0
"""Right after a kill a quorum queue may deliver new messages before those that were held; so long
after RabbitMQ came back nothing is consumed."""

COUNT_S = 1.0
"""So long RabbitMQ may take to count what waits in the inboxes."""

RESTART_MIN_S = 0.2
RESTART_MAX_S = 5.0
"""Between two lives of a sequencer whose connection still stands."""

FAILURES_MAX = 3
"""So many lives of a sequencer in a row may fail at once before that is told as a fault."""

LEADERLESS_MS = 2_000
"""So long a takeover may last before the bridge says that it is not ready."""

LEADERLESS_NAMED = 5
"""So many entities are named at most; there may be thousands."""

TOLD_S = 30.0
"""A fault is over when nothing has failed for so long."""

log = logging.getLogger(__name__)


class Sidecar:
    """Runs the sequencers of a namespace in this process.

    Args:
        on_full: called with an entity's name whenever its queue takes no more messages; again and
            again, `RESTART_MAX_S` and a life of the sequencer apart at most, while it is full.
        poison: where what could not be handled is noted.

    Attributes:
        connected: set while RabbitMQ is there.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        tier: Tier = Tier.STANDARD,
        clock: Callable[[], int] = now_ms,
        on_full: Callable[[str], None] = lambda entity: None,
        poison: Poison | None = None,
    ) -> None:
        self.connected = asyncio.Event()
        self._endpoint = endpoint
        self._tier = tier
        self._clock = clock
        self._on_full = on_full
        self.poison = poison or Poison()
        self._offices: dict[str, Office] = {}
        self._lives: dict[str, Life] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._connection: Connection | None = None
        self._replies: Channel | None = None
        self._boot = ""
        self._failing: dict[str, tuple[float, str]] = {}
        self._has_lost = False
        self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()

    @property
    def is_connected(self) -> bool:
        """Whether RabbitMQ is there."""
        return self.connected.is_set()

    @property
    def reasons(self) -> list[str]:
        """Why not everything that is sent gets its number; a sentence each, none when it does."""
        if not self.is_connected:
            return ["The sidecar has no connection to RabbitMQ; what is sent waits for its number."]
        now_s = asyncio.get_running_loop().time()
        waiting = self._leaderless_reason()
        return [
            *([waiting] if waiting else []),
            *self._failure_reasons(now_s),
        ]

    @property
    def leaderless(self) -> dict[str, int]:
        """The entities that nobody numbers, as far as is known here, and since when (UTC ms).

        The longest first. An entity that another process looks after is not among them.
        """
        since = [
            (office.leaderless_ms, office.queue.name)
            for office in self._offices.values()
            if office.leaderless_ms is not None
        ]
        return {name: at_ms for at_ms, name in sorted(since)}

    def _leaderless_reason(self) -> str | None:
        now_ms = self._clock()
        late = {
            name: since_ms
            for name, since_ms in self.leaderless.items()
            if now_ms - since_ms > LEADERLESS_MS
        }
        if not late:
            return None
        named = ", ".join(
            f"{name!r} (since {datetime.fromtimestamp(since_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ})"
            for name, since_ms in list(late.items())[:LEADERLESS_NAMED]
        )
        rest = f" and {len(late) - LEADERLESS_NAMED} more" if len(late) > LEADERLESS_NAMED else ""
        return f"Nobody numbers what is sent to {named}{rest}; it waits."

    def _failure_reasons(self, now_s: float) -> list[str]:
        return [
            f"The sequencer of {name!r} fails again and again; what is sent waits for its number: "
            f"{error}."
            for name, (at_s, error) in self._failing.items()
            if now_s - at_s < TOLD_S
        ]

    @property
    def meters(self) -> dict[str, Meters]:
        """The counters of each entity."""
        return {office.queue.name: office.meters for office in self._offices.values()}

    async def count_ready(self) -> None:
        """Have the meters know how many arrivals wait in RabbitMQ, beyond those at hand.

        While RabbitMQ does not answer (an alarm) they keep the last count.
        """
        connection = self._connection
        if connection is None or connection.is_blocked:
            return
        behind = [life for life in self._lives.values() if life.may_have_more]
        for office in self._offices.values():
            office.meters.ready = 0
        if not behind:
            return
        with contextlib.suppress(BrokerError, TimeoutError):
            channel = connection.channel_soon()
            try:
                async with asyncio.timeout(COUNT_S):
                    for life in behind:
                        inbox = await channel.declare_queue(names.inbox(life.name), passive=True)
                        life.meters.ready = inbox.messages
            finally:
                channel.abandon()

    def add_entity(self, queue: Queue) -> None:
        """Begin to look after an entity whose resources are declared; or take over a change."""
        key = queue.name.lower()
        office = self._offices.get(key)
        if office is None:
            self._offices[key] = Office(queue, self._tier, poison=self.poison)
            self._employ(key)
        else:
            office.queue = queue
            if office.sequencer is not None:
                office.sequencer.update(queue, self._tier)

    def follow(self, definitions: Namespace) -> None:
        """Look after the queues that there are, and no more after those that are gone."""
        for queue in definitions.queues:
            self.add_entity(queue)
        there = {queue.name.lower() for queue in definitions.queues}
        for key in self._offices.keys() - there:
            self._failing.pop(self._offices.pop(key).queue.name, None)
            task = self._tasks.pop(key, None)
            if task is not None:
                task.cancel()
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)

    async def run(self) -> None:
        """Work until `stop`, over all losses of the connection."""
        await keep_connected(
            self._endpoint, self._serve, name="busbridge sidecar", on_state=self._on_state
        )

    async def stop(self) -> None:
        """Let what is under way be confirmed, and end `run`."""
        self._stopping.set()
        await asyncio.gather(*(life.stop() for life in list(self._lives.values())))
        self._stopped.set()

    async def _serve(self, connection: Connection) -> None:
        boot = await node_boot(connection)
        if self._has_lost or self._boot not in ("", boot):
            await asyncio.sleep(SETTLE_S)
        self._has_lost = False
        self._connection, self._boot = connection, boot
        self._replies = await connection.channel()
        try:
            self.connected.set()
            for key in self._offices:
                self._employ(key)
            self._start(
                "", self._again_and_again("lapsed", lambda: return_lapsed(connection, self.poison))
            )
            await self._stopped.wait()
        finally:
            self.connected.clear()
            self._connection = self._replies = None
            for key in list(self._tasks):
                await self._dismiss(key)

    def _employ(self, key: str) -> None:
        if self._connection is not None and key not in self._tasks:
            name = self._offices[key].queue.name
            self._start(key, self._again_and_again(name, lambda: self._live(key)))

    def _start(self, key: str, work: Coroutine[None, None, None]) -> None:
        self._tasks[key] = asyncio.create_task(work, name=f"sidecar {key}")

    async def _dismiss(self, key: str) -> None:
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _live(self, key: str) -> None:
        """Live one life after another; they end without fault when the prefetch must change."""
        assert self._connection is not None
        assert self._replies is not None
        office = self._offices[key]
        while not self._stopping.is_set():
            life = Life(office, self._connection, self._replies, self._boot, clock=self._clock)
            self._lives[key] = life
            try:
                await life.run()
                return
            except PublishRefused:
                # A full queue is no fault: its senders are told.
                office.leaderless_ms = None
                self._on_full(life.name)
                raise
            except PrefetchChanged as change:
                log.info("sequencer.prefetch entity=%s prefetch=%s", life.name, change)
            finally:
                del self._lives[key]

    async def _again_and_again(
        self, name: str, work: Callable[[], Coroutine[None, None, None]]
    ) -> None:
        """Do a work that ends with an error once more, after a while; until the connection ends."""
        wait_s = RESTART_MIN_S
        failures = 0
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            begun = loop.time()
            cause: Exception
            try:
                await work()
                return
            except BrokerError as error:
                cause = error
                if not self._stopping.is_set():
                    log.warning("sequencer.ended entity=%s error=%s", name, error)
            except Exception as error:
                cause = error
                log.exception("sequencer.failed entity=%s", name)
            has_lasted = loop.time() - begun > RESTART_MAX_S
            failures = 0 if has_lasted else failures + 1
            # A full queue is no fault: its senders are told.
            if failures >= FAILURES_MAX and not isinstance(cause, PublishRefused):
                self._failing[name] = loop.time(), str(cause) or repr(cause)
            wait_s = RESTART_MIN_S if has_lasted else min(wait_s * 2, RESTART_MAX_S)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), wait_s)

    def _on_state(self, connection: Connection | None, error: BrokerError | None) -> None:
        self._has_lost |= connection is None
