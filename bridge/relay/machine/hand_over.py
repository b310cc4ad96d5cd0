"""The hand-over of messages: received, sent, confirmed, completed, and nothing else.

    waiting ──Send──► under way ──accepted──► Complete
       ▲                  │ ──refused──► sent in halves; alone: DeadLetter, or the end
       └──busy, away──────┘
    waiting ──the target is away for too long, or the end──► Release

A message is completed only after the target has confirmed it. In an ordered hand-over (a session,
or an entity whose order is kept) one batch is under way at a time, so nothing later can be
confirmed before an earlier one that failed was sent again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

from bridge.relay.machine.allowance import Allowance
from bridge.relay.machine.attempts import Attempts
from bridge.relay.machine.effects import (
    Accepted,
    Arrival,
    Complete,
    DeadLetter,
    Effect,
    Ended,
    Ending,
    Failed,
    Refused,
    Release,
    Renew,
    Send,
    SendOutcome,
)
from bridge.relay.machine.expired import Expired
from bridge.relay.machine.hand_over_rules import HandOverRules
from bridge.relay.machine.lease import Lease
from bridge.relay.machine.renewals import Renewals
from bridge.relay.machine.waiting_messages import Held, WaitingMessages, keys_of

UNSURE_MAX = 10_000
"""Copies that the target has confirmed and the source may give again; the oldest are forgotten."""


class HandOver:
    """The messages that one receiver has in hand.

    Inputs are methods; what is to be done is taken by `take_effects`. `tick` is called at `due_ms`.

    Args:
        allowance: what several hand-overs of a route may send together; `None`: its own.
        leases: the locks of sessions without which nothing is sent: the source's, the order's.

    Attributes:
        rules: how it is done; `bytes_max` is known when the target has answered.
        attempts: how the target answers.
        cause: why the hand-over ends.
        relayed, refused: counts of messages that were confirmed, and refused for good, by routes.
    """

    def __init__(
        self,
        rules: HandOverRules,
        now_ms: int,
        allowance: Allowance | None = None,
        leases: Sequence[Lease] = (),
    ) -> None:
        self.rules = rules
        self.attempts = Attempts(rules.outage_ms)
        self.cause = ""
        self.relayed: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._allowance = allowance or Allowance(rules.rate_per_s, now_ms)
        self._leases = leases
        self._held: dict[int, Held] = {}
        self._waiting = WaitingMessages()
        self._under_way: dict[int, tuple[Held, ...]] = {}
        self._known: dict[tuple[int, int], Held] = {}
        self._unsure: dict[tuple[int, int], None] = {}
        self._effects: list[Effect] = []
        self._batch = 0
        self._is_refused = False
        self._renewals = Renewals()
        self._expired = Expired()
        self._settling: set[int] = set()
        self._completing: set[int] = set()
        self._ending: Ending | None = None
        self._is_over = False

    def __repr__(self) -> str:
        return (
            f"<HandOver held={len(self._held)} waiting={len(self._waiting)} "
            f"under_way={len(self._under_way)} ending={self._ending}>"
        )

    def __contains__(self, key: int) -> bool:
        return key in self._held

    @property
    def room(self) -> int:
        """How many more messages may be received."""
        return 0 if self._ending is not None else max(0, self.rules.credit - len(self._held))

    @property
    def unconfirmed(self) -> Counter[str]:
        """How many messages are in hand that the target has not confirmed, by routes."""
        held = chain(self._waiting, *self._under_way.values())
        return Counter(each.arrival.route for each in held)

    @property
    def numbers(self) -> Iterable[int]:
        """The numbers of the messages in hand, those that are being completed with them."""
        return (each.arrival.number for each in self._held.values())

    @property
    def is_ending(self) -> bool:
        """Whether nothing more is received or sent."""
        return self._ending is not None

    def take_effects(self) -> list[Effect]:
        """Return what is to be done, in order."""
        found, self._effects = self._effects, []
        return found

    # -- what happens

    def arrive(self, arrivals: Iterable[Arrival], now_ms: int) -> None:
        """Take messages that were received, in the source's order."""
        apart: dict[tuple[str, str, str], list[int]] = {}
        for each in arrivals:
            if each.lock_ms:
                self._renewals.locked((each.key,), each.lock_ms, now_ms)
            if self._is_again(each):
                continue
            held = self._held[each.key] = Held(each, self.rules.messages_max)
            if self._ending is not None:
                apart.setdefault(("release", "", ""), []).append(each.key)
            elif each.fate == "relay":
                self._known[each.identity] = held
                self._waiting.add(held)
            elif each.fate == "refused":
                self._refuse((held,), each.reason, each.description)
            elif each.fate == "expired":
                self._expired.keep((each.key,), now_ms)
            else:
                key = (each.fate, each.reason, each.description)
                apart.setdefault(key, []).append(each.key)
        for (fate, reason, description), keys in apart.items():
            if fate == "complete":
                self._settle(Complete(tuple(keys)))
            elif fate == "dead-letter":
                self._settle(DeadLetter(tuple(keys), reason, description))
            else:
                self._settle(Release(tuple(keys)))
        self._advance(now_ms)

    def _is_again(self, arrival: Arrival) -> bool:
        """Whether a message that has come is in hand, and not given back: it has a new lock.

        It is the one to settle; the copy that waits, is under way or was confirmed stands.
        """
        held = self._known.get(arrival.identity)
        if arrival.identity in self._unsure:
            del self._unsure[arrival.identity]
            held = Held(arrival, 0)
            is_confirmed = True
        elif held is None or held.arrival.key in self._settling - self._completing:
            return False
        else:
            is_confirmed = held.arrival.key in self._completing
            if not is_confirmed:
                self._settle(Release((held.arrival.key,)))
            held.arrival = arrival
        self._held[arrival.key] = self._known[arrival.identity] = held
        if is_confirmed:
            self._settle(Complete((arrival.key,)))
        return True

    def sent(self, batch: int, outcome: SendOutcome, now_ms: int) -> None:
        """Take the outcome of a batch."""
        messages = self._under_way.pop(batch)
        match outcome:
            case Accepted():
                self.attempts.answered()
                self.relayed[messages[0].arrival.route] += len(messages)
                self._settle(Complete(keys_of(messages)))
            case Refused(condition, description):
                self.attempts.answered()
                self._on_refused(messages, condition, description)
            case Failed():
                self._is_refused = outcome.is_of_rights
                self.attempts.failed(outcome, now_ms)
                self._put_back(messages)
        self._advance(now_ms)

    def withdraw(self, batch: int, keys: Iterable[int], now_ms: int) -> None:
        """Give back messages of a batch that were not sent, after a while: their time is over.

        A batch of which nothing is left has no outcome.
        """
        gone = set(keys)
        messages = self._under_way.pop(batch)
        rest = tuple(each for each in messages if each.arrival.key not in gone)
        if rest:
            self._under_way[batch] = rest
        for each in messages:
            if each.arrival.key in gone:
                self._known.pop(each.arrival.identity, None)
        self._expired.keep(gone, now_ms)
        if self._ending is not None:
            self._give_back()
        self._advance(now_ms)

    def settled(self, keys: Iterable[int], now_ms: int, *, is_sure: bool = True) -> None:
        """Note that messages were settled; not `is_sure`: they come again, perhaps.

        What was confirmed by the target and comes again is completed, and not sent a second time.
        """
        for key in keys:
            held = self._held.pop(key, None)
            if held is not None and held.arrival.key == key:
                identity = held.arrival.identity
                if self._known.get(identity) is held:
                    del self._known[identity]
                if not is_sure and key in self._completing:
                    self._unsure[identity] = None
            self._settling.discard(key)
            self._completing.discard(key)
        while len(self._unsure) > UNSURE_MAX:
            del self._unsure[next(iter(self._unsure))]
        self._advance(now_ms)

    def renewed(self, keys: Iterable[int], lock_ms: int, now_ms: int) -> None:
        """Note that locks are valid for so long from now on."""
        self._renewals.locked(self._held_on(keys), lock_ms, now_ms)

    def renewal_failed(self, keys: Iterable[int], now_ms: int) -> None:
        """Note that a renewal was not answered."""
        self._renewals.failed(self._held_on(keys), now_ms)

    def lock_lost(self, keys: Iterable[int], now_ms: int) -> None:
        """Note that messages are not locked any more: they come again by themselves.

        What waits is not sent; out of an order, nothing later may be sent then.
        """
        lost = {each for each in keys if each in self._held}
        waiting = {each.arrival.key for each in self._waiting} & lost
        self._renewals.lost(lost)
        self._forget(waiting)
        if waiting and self.rules.is_ordered:
            self._end(Ending.AGAIN, "the lock of a message has ended")
        self._advance(now_ms)

    def source_lost(self, cause: str, now_ms: int) -> None:
        """End, as nothing that is in hand is locked any more, or its order is not sure."""
        self._forget({*keys_of(self._waiting), *self._expired.take()})
        self._end(Ending.AGAIN, cause)
        self._advance(now_ms)

    def begin_again(self, cause: str, now_ms: int) -> None:
        """End, and give back what was not sent, to be begun again."""
        self._end(Ending.AGAIN, cause)
        self._advance(now_ms)

    def stop(self, now_ms: int) -> None:
        """Finish what is under way, give back the rest, and end."""
        self._end(Ending.STOPPED, "it was stopped")
        self._advance(now_ms)

    def tick(self, now_ms: int) -> None:
        """Do what is due."""
        over_ms = self.attempts.over_ms
        if over_ms is not None and now_ms >= over_ms:
            # No message is at fault: none becomes a dead letter, and one may be in doubt.
            stops = self._is_refused and not self.rules.dead_letters_refused
            self._end(Ending.REFUSED if stops else Ending.OUTAGE, self.attempts.cause)
        if over := self._expired.take(now_ms):
            self._settle(Release(over))
        self._renewals.over(now_ms)
        self._give_up(self._renewals.ended)
        if due := self._renewals.take(now_ms):
            self._effects.append(Renew(due))
        self._advance(now_ms)

    def due_ms(self, now_ms: int) -> int | None:
        """Return when `tick` is to be called; `None`: nothing waits for a time."""
        if self._is_over:
            return None
        times = [self._renewals.due_ms, self._expired.due_ms]
        if self._ending is None:
            times.append(self.attempts.over_ms)
            if self._waiting and now_ms < self.attempts.resume_at_ms:
                times.append(self.attempts.resume_at_ms)
            elif self._waiting and self._allowance.left(now_ms) == 0:
                times.append(self._allowance.next_ms())
        return min((each for each in times if each is not None), default=None)

    # -- sending

    def _advance(self, now_ms: int) -> None:
        if not all(each.is_held(now_ms) for each in self._leases):
            self._end(Ending.AGAIN, "the lock of a session is not held any more")
        self._send(now_ms)
        if self._ending is not None and not self._held and not self._is_over:
            self._is_over = True
            self._effects.append(Ended(self._ending, self.cause))

    def _send(self, now_ms: int) -> None:
        while self._waiting and self._may_send(now_ms):
            left = self._allowance.left(now_ms)
            if left == 0:
                return
            messages = self._waiting.next_batch(self.rules, left)
            self._allowance.take(len(messages))
            self._batch += 1
            self._under_way[self._batch] = messages
            self._effects.append(Send(self._batch, keys_of(messages)))

    def _may_send(self, now_ms: int) -> bool:
        if self._ending is not None or now_ms < self.attempts.resume_at_ms:
            return False
        is_trying = self.rules.is_ordered or self.attempts.failing_since_ms is not None
        return len(self._under_way) < (1 if is_trying else self.rules.batches_max)

    def _on_refused(self, messages: tuple[Held, ...], condition: str, description: str) -> None:
        """Find the message that is refused by halves, and do with it what the route says."""
        if len(messages) > 1:
            for each in messages:
                each.share_max = len(messages) // 2
            self._put_back(messages)
        else:
            self._refuse(messages, condition, description)

    def _refuse(self, messages: tuple[Held, ...], condition: str, description: str) -> None:
        """Do with a message what the route says of one that is refused for good."""
        self.refused[messages[0].arrival.route] += 1
        if self.rules.dead_letters_refused:
            self._settle(DeadLetter(keys_of(messages), condition, description))
            return
        self._put_back(messages)
        self._end(Ending.REFUSED, f"{description} ({condition})")

    def _put_back(self, messages: tuple[Held, ...]) -> None:
        self._waiting.put_back(messages)
        if self._ending is not None:
            self._give_back()
        self._give_up(self._renewals.ended)

    # -- the end, and locks

    def _end(self, ending: Ending, cause: str) -> None:
        if self._ending is None:
            self._ending, self.cause = ending, cause
            self._give_back()

    def _give_back(self) -> None:
        if keys := (*keys_of(self._waiting.take()), *self._expired.take()):
            self._settle(Release(keys))

    def _give_up(self, keys: set[int]) -> None:
        """Give back what waits and is not locked any more; out of an order, all."""
        if not any(each.arrival.key in keys for each in self._waiting):
            return
        if self.rules.is_ordered:
            self._end(Ending.AGAIN, "the lock of a message was not renewed in time")
        else:
            self._settle(Release(keys_of(self._waiting.take(keys))))

    def _settle(self, effect: Complete | Release | DeadLetter) -> None:
        self._renewals.forget(effect.keys)
        self._settling.update(effect.keys)
        if isinstance(effect, Complete):
            self._completing.update(effect.keys)
        self._effects.append(effect)

    def _held_on(self, keys: Iterable[int]) -> list[int]:
        """Return those that are in hand, and not being settled."""
        return [each for each in keys if each in self._held and each not in self._settling]

    def _forget(self, keys: set[int]) -> None:
        """Drop messages that wait and are not locked any more."""
        for each in self._waiting.take(keys):
            self._known.pop(each.arrival.identity, None)
        self._renewals.forget(keys)
        for key in keys:
            self._held.pop(key, None)
