"""The hand-over of messages: received, sent, confirmed, completed, and nothing else.

    waiting ──Send──► under way ──accepted──► Complete
       ▲                  │ ──refused──► sent in halves; alone: DeadLetter, or the end
       └──busy, away──────┘
    waiting ──the target is away for too long, or the end──► Release
    early ──what comes before has come, or is gone──► waiting

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
from bridge.relay.machine.copies import Copies
from bridge.relay.machine.effects import (
    Accepted,
    Arrival,
    Complete,
    DeadLetter,
    Effect,
    Ended,
    Ending,
    Failed,
    Fate,
    Refused,
    Release,
    Renew,
    Send,
    SendOutcome,
    settlement,
)
from bridge.relay.machine.expired import ExpiredKeys
from bridge.relay.machine.hand_over_rules import HandOverRules
from bridge.relay.machine.lease import Lease
from bridge.relay.machine.renewals import Renewals
from bridge.relay.machine.waiting_messages import HeldMessage, WaitingMessages, keys_of


class HandOver:
    """The messages that one receiver has in hand.

    Inputs are methods; what is to be done is taken by `take_effects`. `tick` is called at `due_ms`.

    Args:
        allowance: what several hand-overs of a route may send together; `None`: its own.
        leases: the locks of sessions without which nothing is sent: the source's, the order's.

    Attributes:
        rules: how it is done; `bytes_max` is known when the target has answered.
        attempts: how the target answers.
        early: messages that must not be sent yet, as others come before them, by their keys.
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
        self.early: dict[int, HeldMessage] = {}
        self.cause = ""
        self.relayed: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._allowance = allowance or Allowance(rules.rate_per_s, now_ms)
        self._leases = leases
        self._held: dict[int, HeldMessage] = {}
        self._waiting = WaitingMessages()
        self._under_way: dict[int, tuple[HeldMessage, ...]] = {}
        self._copies = Copies()
        self._effects: list[Effect] = []
        self._batch = 0
        self._is_refused = False
        self._renewals = Renewals()
        self._expired = ExpiredKeys()
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
        held = chain(self.early.values(), self._waiting, *self._under_way.values())
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

    def arrive(self, arrivals: Iterable[Arrival], now_ms: int, *, is_early: bool = False) -> None:
        """Take messages that were received, in the source's order.

        Args:
            is_early: they are kept, with their locks, until `admit`.
        """
        found: list[HeldMessage] = []
        for each in arrivals:
            if each.lock_ms:
                self._renewals.locked((each.key,), each.lock_ms, now_ms)
            if self._is_again(each):
                continue
            held = self._held[each.key] = HeldMessage(each, self.rules.messages_max)
            if is_early and self._ending is None:
                self.early[each.key] = held
                self._copies.add(held)
            else:
                found.append(held)
        self._place(found, now_ms)
        self._advance(now_ms)

    def admit(self, keys: Iterable[int], now_ms: int) -> None:
        """Let early messages go on, in this order."""
        self._place([self.early.pop(each) for each in keys if each in self.early], now_ms)
        self._advance(now_ms)

    def give_room(self, now_ms: int) -> None:
        """Give back the last of the early messages: one that comes before them needs room."""
        if self.early:
            key = max(self.early, key=lambda each: self.early[each].arrival.number)
            del self.early[key]
            self._settle(Release((key,)))
        self._advance(now_ms)

    def _place(self, messages: Iterable[HeldMessage], now_ms: int) -> None:
        """Do with messages what becomes of them."""
        apart: dict[tuple[Fate, str, str], list[int]] = {}
        for held in messages:
            each = held.arrival
            fate = "release" if self._ending is not None else each.fate
            self._copies.forget(held)
            if fate == "relay":
                self._copies.add(held)
                self._waiting.add(held)
            elif fate == "refused":
                self._refuse((held,), each.reason, each.description)
            elif fate == "expired":
                self._expired.keep((each.key,), now_ms)
            else:
                apart.setdefault((fate, each.reason, each.description), []).append(each.key)
        for (fate, reason, description), keys in apart.items():
            self._settle(settlement(fate, tuple(keys), reason, description))

    def _is_again(self, arrival: Arrival) -> bool:
        """Whether a message that has come is in hand, and not given back: it has a new lock.

        It is the one to settle; the copy that waits, is under way or was confirmed stands.
        """
        held = self._copies.of(arrival)
        is_confirmed = self._copies.take_confirmed(arrival)
        if is_confirmed:
            held = HeldMessage(arrival, 0)
        elif held is None or held.arrival.key in self._settling - self._completing:
            return False
        else:
            earlier, held.arrival = held.arrival.key, arrival
            is_confirmed = earlier in self._completing
            if not is_confirmed:
                self._settle(Release((earlier,)))
            if self.early.pop(earlier, None) is not None:
                self.early[arrival.key] = held
        self._held[arrival.key] = held
        self._copies.add(held)
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
                self._refuse(messages, condition, description)
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
                self._copies.forget(each)
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
                self._copies.forget(held)
                if not is_sure and key in self._completing:
                    self._copies.may_come_again(held)
            self._settling.discard(key)
            self._completing.discard(key)
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
        lost = set(self._held_on(keys))
        waiting = {each.arrival.key for each in self._waiting} & lost
        self._renewals.lost(lost)
        self._forget(waiting | (lost & self.early.keys()))
        if waiting and self.rules.is_ordered:
            self._end(Ending.AGAIN, "the lock of a message has ended")
        self._advance(now_ms)

    def source_lost(self, cause: str, now_ms: int) -> None:
        """End, as nothing that is in hand is locked any more, or its order is not sure."""
        self._forget({*keys_of(self._waiting), *self.early, *self._expired.take()})
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

    def _advance(self, now_ms: int) -> None:
        if not all(each.is_held(now_ms) for each in self._leases):
            self._end(Ending.AGAIN, "the lock of a session is not held any more")
        self._send(now_ms)
        if self._ending is not None and not self._held and not self._is_over:
            self._is_over = True
            self._effects.append(Ended(self._ending, self.cause))

    def _send(self, now_ms: int) -> None:
        is_trying = self.rules.is_ordered or self.attempts.failing_since_ms is not None
        most = 1 if is_trying else self.rules.batches_max
        while self._waiting and self._ending is None and len(self._under_way) < most:
            left = self._allowance.left(now_ms)
            if left == 0 or now_ms < self.attempts.resume_at_ms:
                return
            messages = self._waiting.next_batch(self.rules, left)
            self._allowance.take(len(messages))
            self._batch += 1
            self._under_way[self._batch] = messages
            self._effects.append(Send(self._batch, keys_of(messages)))

    def _refuse(self, messages: tuple[HeldMessage, ...], condition: str, description: str) -> None:
        """Find the message that is refused by halves, and do with it what the route says."""
        is_alone = len(messages) == 1
        for each in messages:
            each.share_max = max(1, len(messages) // 2)
        self.refused[messages[0].arrival.route] += is_alone
        if is_alone and self.rules.dead_letters_refused:
            self._settle(DeadLetter(keys_of(messages), condition, description))
            return
        self._put_back(messages)
        if is_alone:
            self._end(Ending.REFUSED, f"{description} ({condition})")

    def _put_back(self, messages: tuple[HeldMessage, ...]) -> None:
        self._waiting.put_back(messages)
        if self._ending is not None:
            self._give_back()
        self._give_up(self._renewals.ended)

    def _end(self, ending: Ending, cause: str) -> None:
        if self._ending is None:
            self._ending, self.cause = ending, cause
            self._give_back()

    def _give_back(self) -> None:
        if keys := (*keys_of(self._waiting.take()), *self.early, *self._expired.take()):
            self.early.clear()
            self._settle(Release(keys))

    def _give_up(self, keys: set[int]) -> None:
        """Give back what is not sent yet and not locked any more; out of an order, all."""
        early = [each for each in self.early if each in keys]
        for each in early:
            del self.early[each]
        if self.rules.is_ordered and any(each.arrival.key in keys for each in self._waiting):
            self._end(Ending.AGAIN, "the lock of a message was not renewed in time")
        if found := (*keys_of(self._waiting.take(keys)), *early):
            self._settle(Release(found))

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
        """Drop messages that wait, or are early, and are not locked any more."""
        early = [self.early.pop(each) for each in keys if each in self.early]
        for each in (*self._waiting.take(keys), *early):
            self._copies.forget(each)
        self._renewals.forget(keys)
        for key in keys:
            self._held.pop(key, None)
