"""Receiving from RabbitMQ 4.3: returns are not counted, so windows close at any time.

RabbitMQ refills a window's prefetch with every ack of a message that came by that window.
Therefore:

* while a receiver waits, acks may refill windows beyond the demand: no message stands in vain;
* while no receiver waits, windows are closed, at the latest before an ack, and their messages are
  returned. If the receivers usually ask again at once (`read_ahead`), they have `LINGER_S` for it.

**One window at a time has room.** RabbitMQ serves windows with room in turn, and messages of two
come in no order (docs/rabbitmq-faults.md: windows-order), even to one receiver alone. So a larger
demand waits until the window is full, and a full one is closed before an ack that would refill it
beside another. A first, small window of fast receivers is closed before an ack; a larger follows.

Messages that a closing window may still bring count as fetched until it has closed. When a message
is returned, all on their way to windows stood behind it: they go back too, before any fetch.

**A window with room** is closed when RabbitMQ has said that nothing is on its way to it. A channel
returns what comes for a cancelled consumer one by one, and keeps all but `PASSED_ON_MAX` of such
commands back while the next consume goes ahead (docs/rabbitmq-faults.md: returns-late). RabbitMQ is
asked where acks have made the room, or where more commands than that may be under way.

**What has gone back** (`returns`) is fetched with gets, one after the other, where more than that
may be under way: a window would overtake. Messages go back only when no window can bring more, and
when what has gone back before, and should stand behind them, has been fetched. Then all go back by
their numbers, if a channel passes on as many at once: it splits more by their windows.

**Apart** (4.3 clusters, and the library): each window has a channel of its own, on which nothing is
consumed again, and nothing is got but what RabbitMQ has returned. Messages of one channel go back
at a time, and nothing is fetched meanwhile.
"""

from __future__ import annotations

from bridge.machine.credit.balance import FetchState
from bridge.machine.credit.buffer import Message, number_of
from bridge.machine.credit.effects import Close, Effect, Get, Open, Return, Withdrawn
from bridge.machine.credit.read_ahead import AHEAD, AHEAD_MAX, LINGER_S
from bridge.machine.credit.returns import Returns
from bridge.machine.credit.strategy import Strategy, says_empty
from bridge.machine.credit.window_bounds import (
    FILLS_S,
    GETS_MAX,
    LOOKS_MAX,
    PASSED_ON_MAX,
    SILENT_S,
    WINDOW_SIZE_MAX,
    WINDOWS_MAX,
)


class Windows(Strategy[Message]):
    """The strategy for a queue of RabbitMQ 4.3 or later.

    Args:
        is_apart: each window has a channel of its own.
        passed_on_max: the most commands that a channel passes on to a slow queue.
    """

    def __init__(
        self,
        *,
        is_apart: bool = False,
        windows_max: int = WINDOWS_MAX,
        passed_on_max: int = PASSED_ON_MAX,
    ) -> None:
        super().__init__()
        self._passed_on_max = passed_on_max
        self._commands_max = 0
        self._is_apart = is_apart
        self._windows_max = windows_max
        self._gets_max = 0 if is_apart else GETS_MAX
        self._returns: list[Message] = []
        self._returned = Returns(passed_on_max)
        self._idle_s = 0.0
        self._came_s = 0.0
        self._look: int | None = None
        self._looks = 0
        self._looked_s = 0.0
        self._looked_room = 0
        self._is_awaited = False
        self._is_seen = True

    @property
    def buffered(self) -> int:
        """Messages that wait here for a receiver, or for their return."""
        return self.balance.buffer.count + len(self._returns)

    def ask(self, receiver: int, count: int, now_s: float) -> None:
        """Ask for `count` more messages for a receiver."""
        waiters = self.balance.waiters
        self._read_ahead.asked(now_s, is_first=not waiters.asked)
        self.due_s = None
        waiters.add(receiver, count)

    def arrived(self, fetch: int, message: Message, now_s: float) -> int | None:
        """Take a fetched message; return the receiver to deliver the message to."""
        entry = self.balance.fetches.get(fetch)
        is_behind = entry is not None and entry.is_behind
        self.balance.came(fetch)
        returned = self._returned
        if returned.may_come and not message.redelivered:
            returned.have_come()
        if fetch == returned.proof:
            returned.prove()
        if is_behind:
            self._returns.append(message)
            return None
        receiver = self.balance.take(message, now_s)
        if not self.balance.waiters.asked:
            self._came_s = now_s
            self._note_surplus(now_s)
        return receiver

    def released(self, message: Message, now_s: float) -> None:
        """Take back a message that a receiver has given back untouched."""
        self._go_back()
        self._returns.append(message)

    def returning(self, message: Message) -> None:
        """Note that a message returns to the queue now, before the messages read ahead."""
        self._go_back()
        self._returned.add(message.number)

    def _go_back(self) -> None:
        self._read_ahead.end()
        if self.balance.surplus > 0:
            self._fall_behind()

    def settling(self, fetch: int, now_s: float) -> Close | None:
        """Return the effect to carry out before a message of this fetch is settled, or `None`."""
        balance = self.balance
        self._commands_max += 1
        self._read_ahead.settled(now_s, balance.waiters.asked)
        entry = balance.fetches.get(fetch)
        if entry is None or entry.state is not FetchState.OPEN:
            return None
        may_refill = balance.waiters.asked or self._read_ahead.is_on
        surplus_max = max(AHEAD_MAX, entry.size) if may_refill else 0
        is_small = self._read_ahead.is_fast and entry.size < AHEAD
        is_second = len(balance.fetches) > 1 and balance.is_another_filling(fetch)
        if entry.is_behind or is_small or is_second or balance.surplus >= surplus_max:
            return balance.close(fetch)
        balance.refill(entry)
        if self._returned.may_come:
            self._returned.fetched(1)
        self._is_seen = False
        self._note_surplus(now_s)
        return None

    def empty(self, fetch: int) -> None:
        """End a get that has found no message."""
        self._returned.have_come()
        super().empty(fetch)
        if fetch == self._returned.proof:
            self._returned.prove()

    def closed(self, fetch: int) -> None:
        """End a window that RabbitMQ has closed, whether told to or not."""
        entry = self.balance.fetches.get(fetch)
        if entry is not None and entry.state is FetchState.CLOSING:
            self._returned.went_astray(entry.room)
        super().closed(fetch)
        if fetch == self._returned.proof:  # RabbitMQ has not answered
            self._returned.proof = None
        if fetch == self._look:  # RabbitMQ does not tell
            self._look = None
            self._see()

    def looked(self, fetch: int, ready: int, consumers: int) -> None:
        """Take RabbitMQ's counts of ready messages and of consumers."""
        self.balance.end(fetch)
        self._look = None
        self._looks += 1
        if says_empty(ready, consumers) or self._looks >= LOOKS_MAX:
            self._see()
        else:
            self._is_seen = False

    def _see(self) -> None:
        """Note that windows may be closed now, with the room that they have."""
        self._is_seen = True
        self._commands_max = 0

    def is_filling(self, fetch: int) -> bool:
        """Whether an ack of this fetch's message would bring more than receivers ask for."""
        entry = self.balance.fetches.get(fetch)
        is_open = entry is not None and entry.state is FetchState.OPEN and entry.room > 0
        return is_open and self.balance.surplus >= 0

    def lost(self) -> None:
        """Forget the channels and their messages; receivers still wait."""
        self._returns.clear()
        self._returned.lose()
        self._looks = 0
        self._look = None
        self._see()
        super().lost()

    def plan(self, now_s: float, *, can_fetch: bool = True) -> list[Effect[Message]]:
        """Return the effects that bring the fetches in line with the receivers' demand."""
        balance, waiters = self.balance, self.balance.waiters
        self._is_awaited = False
        effects = balance.offer()
        self._note_surplus(now_s)
        if self.due_s is not None and now_s >= self.due_s:
            until_s = min(self._came_s + LINGER_S, self._idle_s + FILLS_S)
            self.due_s = max(until_s, now_s + LINGER_S)
            if now_s >= until_s:
                self._read_ahead.end()
        if waiters.has_withdrawals or not (waiters.asked or self._read_ahead.is_on):
            self._end_surplus(effects, now_s)
        if balance.fetches:
            self._close_full(effects, now_s)
        if (self._returns or self._returned.is_mixed) and (can_fetch or self.is_last):
            effects += self._give_back()
            can_fetch = can_fetch and not self._is_apart  # other channels may be faster
        if waiters.has_withdrawals:
            tickets = waiters.end_withdrawals(balance.under_way)
            effects += [Withdrawn(ticket) for ticket in tickets]
        wanted = (1 if self._read_ahead.is_fast else 0) - balance.surplus
        if wanted > 0 and can_fetch and not self._returns:
            effects += self._fetch(wanted)
        if effects:
            self._note_surplus(now_s)
            if self._is_apart and any(isinstance(each, Return) for each in effects):
                self.due_s = now_s  # the next channel's
        if self._is_awaited and self.due_s is None:
            # A receiver waits, and perhaps nothing happens: what was ready went to others.
            self.due_s = self._looked_s + (LINGER_S if self._look is None else SILENT_S)
        return effects

    def _note_surplus(self, now_s: float) -> None:
        """Note until when room or messages may stand that no receiver waits for."""
        balance = self.balance
        # `balance.surplus`, where nobody asks: this runs several times a message.
        if balance.waiters.asked or balance.under_way + balance.buffer.count <= balance.closing:
            self.due_s = None
        elif self.due_s is None:
            self._idle_s = now_s
            self.due_s = now_s + LINGER_S

    def _end_surplus(self, effects: list[Effect[Message]], now_s: float) -> None:
        """Close unwanted room, and return messages that came for no receiver."""
        balance = self.balance
        if balance.surplus <= balance.closing or self._must_look(effects, now_s):
            return
        self._looks = 0
        if balance.buffer.count:
            self._fall_behind()
        surplus = balance.surplus - balance.closing
        for fetch, entry in reversed(balance.fetches.items()):
            if entry.state is FetchState.OPEN and entry.room and (surplus > 0 or entry.is_behind):
                surplus -= entry.room
                effects.append(balance.close(fetch))

    @property
    def _may_close(self) -> bool:
        """Whether windows may be closed with room, as far as RabbitMQ's channels are concerned."""
        may_close = self._is_seen and self._commands_max <= self._passed_on_max
        return may_close or self.is_last

    def _must_look(self, effects: list[Effect[Message]], now_s: float) -> bool:
        """Whether to wait until RabbitMQ has said that no message can be on its way.

        Only what comes to an empty queue is returned without overtaking anything.
        """
        if self._may_close:
            return False
        if self._look is not None:
            self._is_awaited = now_s < self._looked_s + SILENT_S
            return self._is_awaited
        if self._looks and now_s < self._looked_s + LINGER_S:
            self._is_awaited = True
            return True
        fetches = self.balance.fetches.values()
        room = sum(each.room for each in fetches if each.state is FetchState.OPEN)
        if not room:
            return False
        if room < self._looked_room:  # messages still come
            self._looks = 0
        self._looked_s, self._looked_room = now_s, room
        effects.append(look := self.look())
        self._look = look.fetch
        self._is_awaited = True
        return True

    def _fall_behind(self) -> None:
        """Return buffered and arriving messages: in the queue they stood behind a returned one."""
        for entry in self.balance.fetches.values():
            entry.is_behind = True
        self._returns += self.balance.buffer.pop_all()

    def _give_back(self) -> list[Effect[Message]]:
        """Return the effects that return messages, or get what must go back with them."""
        count = len(self._returns)
        self._returns.sort(key=number_of)
        if not self.is_last:
            has_room = False
            for entry in self.balance.fetches.values():
                if entry.room and (entry.is_behind or entry.state is not FetchState.OPEN):
                    return []
                has_room = has_room or entry.room > 0
            first = self._returns[0].number if self._returns else 0
            if not has_room and self._returned.must_come_before(first, count):
                return self._fetch_returned()
            if not has_room and self._returned.astray_max:
                return self._get(1, is_behind=True)
            if self._is_apart and count:
                fetch = self._returns[0].fetch
                others = (at for at, each in enumerate(self._returns) if each.fetch != fetch)
                count = next(others, count)
        going, self._returns = self._returns[:count], self._returns[count:]
        for each in going:
            self._returned.add(each.number)
        return [Return(each) for each in going]

    def _fetch_returned(self) -> list[Effect[Message]]:
        """Begin the fetch of what went back before: it goes back once more, behind the others."""
        if self._may_overtake:
            return self._prove(is_behind=True)
        if (count := self._returned.count) <= self._gets_max:
            return self._get(count, is_behind=True)
        return self._open(count, is_behind=True)

    def _get(self, count: int, *, is_behind: bool = False) -> list[Effect[Message]]:
        """Begin gets."""
        self._returned.fetched(count)
        begin = self.balance.begin
        return [Get(begin(FetchState.GETTING, 1, is_behind=is_behind)) for _ in range(count)]

    def _prove(self, *, is_behind: bool = False) -> list[Effect[Message]]:
        """Begin a get that shows whether a channel keeps back what went back."""
        self._returned.fetched(1)
        fetch = self.balance.begin(FetchState.GETTING, 1, is_behind=is_behind)
        self._returned.proof = fetch
        return [Get(fetch)]

    def _open(self, size: int, *, is_behind: bool = False) -> list[Effect[Message]]:
        """Begin a window; one that is for what went back is closed when that has come."""
        if self._returned.may_come:
            self._is_seen = False
        self._returned.fetched(size)
        self._commands_max += size
        return [Open(self.balance.begin(FetchState.OPEN, size, is_behind=is_behind), size)]

    def _close_full(self, effects: list[Effect[Message]], now_s: float) -> None:
        """Close windows which an ack would refill in vain, and those whose messages go back."""
        is_on = self._read_ahead.is_on
        unseen: list[int] = []
        for fetch, entry in self.balance.fetches.items():
            if entry.state is FetchState.OPEN and (entry.is_behind or not (entry.room or is_on)):
                if entry.room and not self._may_close:
                    unseen.append(fetch)
                    continue
                if entry.room:
                    self._looks = 0
                effects.append(self.balance.close(fetch))
        if unseen and not self._must_look(effects, now_s):
            effects += [self.balance.close(fetch) for fetch in unseen]

    def _fetch(self, wanted: int) -> list[Effect[Message]]:
        """Begin fetches.

        Nothing is begun while a message may still be returned that stood before the new messages,
        nor while gets are under way or a window has room: what is begun later could overtake them.
        """
        balance, read_ahead = self.balance, self._read_ahead
        busy = 0
        has_room = False
        for entry in balance.fetches.values():
            if entry.is_behind or entry.state is FetchState.GETTING:
                return []
            has_room = has_room or entry.room > 0
            busy += entry.room > 0 or entry.state is not FetchState.OPEN
        if busy >= self._windows_max or has_room:
            return []
        if self._may_overtake:
            return self._prove()
        is_small = wanted <= self._gets_max and not read_ahead.is_on
        if is_small and balance.is_stocked:
            return self._get(wanted)
        size = min(max(wanted, AHEAD) if read_ahead.is_fast else wanted, WINDOW_SIZE_MAX)
        return [*self._close_oldest(), *self._open(size)]

    @property
    def _may_overtake(self) -> bool:
        """Whether a window could overtake what has gone back."""
        kept_back_max = 0 if self._is_apart else self._returned.kept_back_max
        return kept_back_max > 0 and self._commands_max + kept_back_max > self._passed_on_max

    def _close_oldest(self) -> list[Close]:
        """Return the effects that close full windows: only a few may wait for acks."""
        full = [
            fetch
            for fetch, entry in self.balance.fetches.items()
            if entry.state is FetchState.OPEN and not entry.room
        ]
        keep = 0 if self._is_apart else self._windows_max - 1
        return [self.balance.close(fetch) for fetch in full[: max(len(full) - keep, 0)]]
