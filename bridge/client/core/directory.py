"""Definitions of entities, as any bridge of the namespace describes them.

A client asks through the exchange of bridges' notifications which bridge answers. Then it asks that
bridge by its queue, until the bridge is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from bridge.client.core.publisher import TIMEOUT_S, Answered, Publisher
from bridge.client.core.wire import CallerFuture, Unroutable, Wire, fail
from bridge.client.exceptions import (
    OperationTimeoutError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
    of_condition,
    of_model,
)
from bridge.model.errors import ServiceBusError as ModelError
from bridge.topology import names
from bridge.topology.description import DescribedEntity, decode
from bridge.wire.basic import Table, array, encode_table, long, text
from bridge.wire.notifications import WHO
from bridge.wire.reply import Done, Refusal, decode_reply

FRESH_S = 15.0
"""Age at which a definition is asked for again; a bridge counts the question as a use of the
entity."""

KNOWN_S = 2.0
"""Time without an answer after which the old definition is used; the answer is still awaited."""

DISCOVERY_S = 10.0

_PASSING = (
    OperationTimeoutError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusServerBusyError,
)
"""Errors when no bridge answers (restarts, or an alarm of RabbitMQ): the old definition holds."""

NO_BRIDGE = (
    "No bridge answers in this virtual host: run `busbridge serve` or `sidecar` on it, and see "
    "that the client has the same RabbitMQ and virtual host."
)

Then = Callable[[DescribedEntity], None]

Replied = Callable[[str, bytes | Exception], None]
"""Called with a bridge's queue and its raw reply, or an error."""


class KnownDefinitions:
    """The known definitions of entities.

    Args:
        held: how many active messages and dead letters of an entity this client holds.
    """

    def __init__(
        self, wire: Wire, publisher: Publisher, held: Callable[[str], Sequence[int]]
    ) -> None:
        self._wire = wire
        self._publisher = publisher
        self._held = held
        self._known: dict[str, tuple[DescribedEntity, float]] = {}
        self._bridge: str | None = None

    def known(self, path: str, answer: CallerFuture, then: Then) -> None:
        """Call `then` with a definition of the last `FRESH_S`, or have `answer` fail."""
        found = self._known.get(path.lower())
        if found is not None and self._wire.now_s() - found[1] < FRESH_S:
            guarded(answer, then, found[0])
        else:
            self.read(path, answer, then)

    def read(self, path: str, answer: CallerFuture, then: Then) -> None:
        """Call `then` with the entity's current definition, or have `answer` fail.

        If no bridge answers, the old definition is used.
        """
        found = self._known.get(path.lower())
        waiting = [then]

        def go_on(described: DescribedEntity) -> None:
            if waiting:
                guarded(answer, waiting.pop(), described)

        def keep() -> None:
            if found is not None and waiting:
                self._known[path.lower()] = found[0], self._wire.now_s()
                go_on(found[0])

        def answered(body: bytes | Exception) -> None:
            if not isinstance(body, Exception):
                guarded(answer, self._learn, path, body, go_on)
            elif found is not None and isinstance(body, _PASSING):
                keep()
            elif waiting:
                fail(answer, body)

        if found is not None:
            self._wire.later(KNOWN_S, keep)
        question = {"do": text("client-describe"), "path": text(path), **self.held(path)}
        try:
            self.ask(question, answered)
        except ServiceBusError as error:
            answered(error)

    def forget(self, path: str) -> None:
        """Forget a definition: the entity does not exist."""
        self._known.pop(path.lower(), None)

    def held(self, path: str) -> Table:
        """Return the counts of held messages as fields of a question."""
        return {"held": array([long(count) for count in self._held(path)])}

    def ask(self, question: Table, answered: Answered, exchange: str = "") -> None:
        """Ask a bridge; a refusal becomes an error of `exceptions`.

        Args:
            exchange: an exchange that routes to bridges' queues by name.
        """

        def replied(bridge: str, reply: bytes | Exception) -> None:
            found = content_of(reply)
            answered(found if isinstance(found, Exception) else found.content)

        self.ask_any(question, replied, exchange=exchange)

    def ask_any(
        self, question: Table, replied: Replied, *, wait_s: float = TIMEOUT_S, exchange: str = ""
    ) -> None:
        """Ask a bridge; `replied` is called with the bridge and its reply."""
        body = encode_table(question)
        ask = partial(self._publisher.ask, exchange)

        def on_first(bridge: str, reply: bytes | Exception) -> None:
            if isinstance(reply, Unroutable):
                self._bridge = None
                self._discover(on_found, failed)
            else:
                on_reply(bridge, reply)

        def on_found(bridge: str) -> None:
            ask(bridge, {}, body, partial(on_reply, bridge), wait_s=wait_s)

        def on_reply(bridge: str, reply: bytes | Exception) -> None:
            if isinstance(reply, OperationTimeoutError):  # this bridge may hang; another may not
                self._bridge = None
            replied(bridge, reply)

        failed = partial(replied, "")
        bridge = self._bridge
        if bridge is None:
            self._discover(on_found, failed)
        else:
            first = partial(on_first, bridge)
            ask(bridge, {}, body, first, wait_s=wait_s)

    def _discover(self, then: Callable[[str], None], failed: Answered) -> None:
        def answered(reply: bytes | Exception) -> None:
            found = content_of(reply)
            if isinstance(found, Exception):
                failed(ServiceBusCommunicationError(f"{NO_BRIDGE} ({found})"))
                return
            self._bridge = found.content.decode()
            try:
                then(self._bridge)
            except ServiceBusError as error:
                failed(error)

        self._publisher.ask(names.EVENTS, "", {}, b"", answered, kind=WHO, wait_s=DISCOVERY_S)

    def _learn(self, path: str, body: bytes, then: Then) -> None:
        described = decode(body)
        self._known[path.lower()] = described, self._wire.now_s()
        then(described)


def guarded(answer: CallerFuture, call: Callable[..., None], *arguments: object) -> None:
    """Call a function; exceptions go to the waiting caller."""
    try:
        call(*arguments)
    except ModelError as error:
        fail(answer, of_model(error))
    except Exception as error:
        fail(answer, error)


def content_of(reply: bytes | Exception) -> Done | Exception:
    """Return a bridge's answer, or an error."""
    if isinstance(reply, Unroutable):
        return ServiceBusCommunicationError(NO_BRIDGE)
    if isinstance(reply, Exception):
        return reply
    try:
        found = decode_reply(reply)
    except ValueError as error:
        return ServiceBusCommunicationError(f"A bridge's answer cannot be read: {error}")
    if isinstance(found, Refusal):
        return of_condition(found.condition, found.description)
    return found
