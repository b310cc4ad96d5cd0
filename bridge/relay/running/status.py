"""What a route says about itself: for metrics, health, and the table at a terminal."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from enum import StrEnum

from bridge.model.session_id import fold
from bridge.relay.machine.hand_over import HandOver


class RouteState(StrEnum):
    """What a route does at the moment.

    Attributes:
        STARTING: its links are being attached.
        RUNNING: it receives and sends.
        STANDING_BY: another process has the route, whose order is kept.
        TARGET_AWAY: the target does not take what is sent.
        SOURCE_AWAY: the source does not give messages.
        AWAITING: the next message of its order does not come: another receiver has it locked.
        PAUSED: its run has failed, and is begun again after a pause.
        STOPPED: the target has refused a message for good, or its operator has ended it.
    """

    STARTING = "starting"
    RUNNING = "running"
    STANDING_BY = "standing-by"
    TARGET_AWAY = "target-away"
    SOURCE_AWAY = "source-away"
    AWAITING = "awaiting"
    PAUSED = "paused"
    STOPPED = "stopped"


SOUND = frozenset({RouteState.STARTING, RouteState.RUNNING, RouteState.STANDING_BY})
"""The states in which a route needs nobody."""


class RouteCondition:
    """What the routes of one source share: their messages are received and held together.

    Attributes:
        state, since_ms: what they do, and since when.
        last_error, last_error_ms: the last error, and when it was; "" and 0 for none.
        oldest_ms: when the source's oldest active message was enqueued; `None`: there is none.
        machines: what has messages in hand.
        relayed, refused: what was counted by machines that have ended, by the names of routes.
        statuses: the routes' own, by their names; the one that receives is the first.
        held_up: sessions that do not go on, by their folded ids, and why; the others do.
    """

    def __init__(self, now_ms: int) -> None:
        self.state = RouteState.STARTING
        self.since_ms = now_ms
        self.last_error = ""
        self.last_error_ms = 0
        self.oldest_ms: int | None = None
        self.machines: dict[HandOver, None] = {}
        self.relayed: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.statuses: dict[str, RouteStatus] = {}
        self.held_up: dict[str, str] = {}


class RouteStatus:
    """The counts and the state of one route, over all its runs.

    Args:
        beside: the route that `else` leads here from, if one does.

    Attributes:
        name, source, target: the route's name and places.
        returned: messages that had been at the target before, and were completed.
        filtered: messages that no filter takes, and that were settled as the route says.
        expired: messages that were given back, as their time was over.
        incomplete: settlements that the source has not confirmed: the message comes again.
        without_pairs: messages that are relayed without some of our properties: 64 KB are full.
    """

    def __init__(
        self,
        name: str,
        source: str,
        target: str,
        clock: Callable[[], float] = time.time,
        *,
        beside: RouteStatus | None = None,
    ) -> None:
        self.name, self.source, self.target = name, source, target
        self.returned = self.filtered = 0
        self.expired = self.incomplete = self.without_pairs = 0
        self._clock = clock
        self._condition: RouteCondition = (
            beside._condition if beside else RouteCondition(self.now_ms())
        )
        self._condition.statuses[name] = self

    def __repr__(self) -> str:
        return f"<RouteStatus {self.name!r} {self.state} relayed={self.relayed}>"

    def now_ms(self) -> int:
        """Return the time, in milliseconds since 1970."""
        return int(self._clock() * 1000)

    @property
    def chain(self) -> list[RouteStatus]:
        """This route, and those that `else` leads to from it, in order."""
        return list(self._condition.statuses.values())

    def named(self, name: str) -> RouteStatus:
        """Return the status of a route of the same source."""
        return self._condition.statuses[name]

    @property
    def state(self) -> RouteState:
        """What the route does."""
        return self._condition.state

    @state.setter
    def state(self, state: RouteState) -> None:
        if state is not self._condition.state:
            self._condition.state = state
            self._condition.since_ms = self.now_ms()

    @property
    def since_ms(self) -> int:
        """Since when the state is what it is."""
        return self._condition.since_ms

    @property
    def last_error(self) -> str:
        """The last error; "" for none."""
        return self._condition.last_error

    @property
    def last_error_ms(self) -> int:
        """When the last error was; 0 for none."""
        return self._condition.last_error_ms

    def failed(self, error: BaseException | str) -> None:
        """Note an error."""
        self._condition.last_error = str(error) or repr(error)
        self._condition.last_error_ms = self.now_ms()

    def holds(self, machine: HandOver) -> None:
        """Count what a hand-over has in hand, and does."""
        self._condition.machines[machine] = None

    def let_go(self, machine: HandOver) -> None:
        """Count a hand-over no more but for what it has done: it has ended."""
        condition = self._condition
        if machine in condition.machines:
            del condition.machines[machine]
            condition.relayed.update(machine.relayed)
            condition.refused.update(machine.refused)

    @property
    def relayed(self) -> int:
        """Messages that the target has confirmed."""
        now = sum(each.relayed[self.name] for each in self._condition.machines)
        return self._condition.relayed[self.name] + now

    @property
    def refused(self) -> int:
        """Messages that the target has refused for good."""
        now = sum(each.refused[self.name] for each in self._condition.machines)
        return self._condition.refused[self.name] + now

    @property
    def numbers(self) -> list[int]:
        """The numbers of all messages of the source in hand."""
        return [number for each in self._condition.machines for number in each.numbers]

    @property
    def unconfirmed(self) -> int:
        """Messages in hand that the target has not confirmed."""
        return sum(each.unconfirmed[self.name] for each in self._condition.machines)

    def saw_oldest(self, enqueued_ms: int | None) -> None:
        """Note when the source's oldest active message was enqueued; `None`: there is none."""
        self._condition.oldest_ms = enqueued_ms

    @property
    def lag_s(self) -> float:
        """How long the source's oldest message has waited, as last seen, in seconds."""
        oldest_ms = self._condition.oldest_ms
        return 0.0 if oldest_ms is None else max(0, self.now_ms() - oldest_ms) / 1000

    def hold_up(self, session_id: str, cause: str) -> None:
        """Note that a session does not go on until somebody does something."""
        self._condition.held_up[fold(session_id)] = cause
        self.failed(cause)

    def let_on(self, session_id: str | None = None) -> None:
        """Note that a session goes on; `None`: nothing is known of any."""
        if session_id is None:
            self._condition.held_up.clear()
        else:
            self._condition.held_up.pop(fold(session_id), None)

    @property
    def held_up_sessions(self) -> int:
        """How many sessions do not go on."""
        return len(self._condition.held_up)

    @property
    def is_sound(self) -> bool:
        """Whether the route needs nobody."""
        return self.state in SOUND and not self._condition.held_up

    @property
    def reason(self) -> str:
        """What it needs somebody for, in a sentence; "" while it is sound."""
        if self.state not in SOUND:
            cause = self.last_error or "no error is known"
            return f"The route {self.name!r} is {self.state}: {cause}."
        for cause in self._condition.held_up.values():
            return f"The route {self.name!r} holds up {self.held_up_sessions} sessions: {cause}."
        return ""
