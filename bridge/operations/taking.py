"""The taking of messages out of an entity: to be moved to another place, or to be removed.

    received ──not wanted──► held ──────────────the end──────────────► Release
       │ wanted                ▲ refused alone
       ▼                       │
    waiting ──► Write ──► Send ┴─accepted─► Complete
       ▲          │         │
       └──────────┴─failed──┘   ──the end──► Release

Each message that was received is in one of these places. A message is completed only when it is
written to the undo file, if there is one, and the target has confirmed its copy, if it is moved.
What is given back is given back uncounted. Messages that are not wanted stay locked until the end:
given back at once, they would be received again at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from bridge.operations.taking_account import TakingAccount
from bridge.operations.taking_batches import Batch, WaitingBatches, Wanted, keys_of
from bridge.operations.taking_effects import (
    Received,
    TakingEffect,
    TakingEnd,
    TakingEnded,
    Write,
)
from bridge.operations.taking_rules import TakingRules
from bridge.relay.machine.allowance import Allowance
from bridge.relay.machine.attempts import Attempts
from bridge.relay.machine.effects import (
    Accepted,
    Complete,
    Failed,
    Refused,
    Release,
    Renew,
    Send,
    SendOutcome,
)
from bridge.relay.machine.renewals import Renewals


class Taking:
    """The messages that one receiver has in hand.

    Inputs are methods; what is to be done is taken by `take_effects`. `tick` is called at `due_ms`.

    Args:
        before: what has taken the messages of other receivers before, as those of another session:
            its counts, limit and rate are gone on with.

    Attributes:
        account: what has become of the messages.
        attempts: how the target answers.
        cause: why it has ended.
    """

    def __init__(self, rules: TakingRules, now_ms: int, before: Taking | None = None) -> None:
        self.rules = rules
        self.account: TakingAccount = TakingAccount() if before is None else before.account
        self.attempts = Attempts(rules.outage_ms)
        self.cause = ""
        self._allowance: Allowance = (
            Allowance(rules.rate_per_s, now_ms) if before is None else before._allowance
        )
        self._held: dict[int, Received] = {}
        self._waiting = WaitingBatches(rules.messages_max, rules.bytes_max)
        self._writing: dict[int, Batch] = {}
        self._sending: dict[int, Batch] = {}
        self._completing: dict[int, Wanted] = {}
        self._replaced: set[int] = set()
        self._releasing: dict[int, Wanted | None] = {}
        self._refused: set[tuple[int, int]] = set()
        self._unsure: set[tuple[int, int]] = set()
        self._renewals = Renewals()
        self._effects: list[TakingEffect] = []
        self._batch = 0
        self._is_dry = False
        self._end_of: TakingEnd | None = None
        self._is_over = False

    def __repr__(self) -> str:
        return (
            f"<Taking held={len(self._held)} waiting={len(self._waiting)} "
            f"writing={len(self._writing)} sending={len(self._sending)} "
            f"settling={len(self._completing) + len(self._releasing)} end={self._end_of}>"
        )

    @property
    def room(self) -> int:
        """How many messages may be received now; any of them may be wanted, or not."""
        if self._is_dry or self._end_of is not None:
            return 0
        free = [self.rules.window - self._wanted, self.rules.hold + 1 - len(self._held)]
        if self.rules.limit is not None:
            free.append(self.rules.limit - self.account.taken - self._uncounted)
        return max(0, min(free))

    @property
    def is_ending(self) -> bool:
        """Whether nothing more is received or sent."""
        return self._end_of is not None

    @property
    def held(self) -> int:
        """How many messages are held that are not taken."""
        return len(self._held)

    @property
    def _uncounted(self) -> int:
        """How many wanted ones are in hand that are not counted as taken yet."""
        under_way = sum(map(len, (*self._writing.values(), *self._sending.values())))
        return len(self._waiting) + under_way

    @property
    def _wanted(self) -> int:
        return self._uncounted + len(self._completing)

    def take_effects(self) -> list[TakingEffect]:
        """Return what is to be done, in order."""
        found, self._effects = self._effects, []
        return found

    def receive(self, messages: Iterable[Received], now_ms: int) -> None:
        """Take messages that were received, in the source's order."""
        if self._is_over:
            return  # who ends the link gives them back
        late: list[int] = []
        again: list[Wanted] = []
        batches = (*self._writing.values(), *self._sending.values())
        wanted = chain(self._waiting, *batches, self._completing.values())
        in_hand = {each.received.identity: each for each in wanted}
        for each in messages:
            if each.lock_ms:
                self._renewals.locked((each.key,), each.lock_ms, now_ms)
            if each.identity in self._unsure:
                again.append(Wanted(each, 1))
                continue
            if each.identity in in_hand and each.is_wanted and not each.refusal:
                self._take_lock(in_hand[each.identity], each)
                continue
            self.account.looked_at += 1
            if self._end_of is not None:
                late.append(each.key)
            elif each.refusal:
                self._refuse(each, each.refusal)
            elif each.is_wanted and each.identity not in self._refused:
                self._waiting.add(each)
            else:
                self._held[each.key] = each
        if late:
            self._release(dict.fromkeys(late))
        if again:
            self._unsure.difference_update(each.received.identity for each in again)
            self.account.not_completed -= len(again)
            self._complete(again)
        self._advance(now_ms)

    def _take_lock(self, wanted: Wanted, received: Received) -> None:
        """Settle a message by the lock with which it came again: the earlier one has ended."""
        earlier = wanted.received.key
        self._renewals.forget((earlier,))
        wanted.received = received
        if self._completing.pop(earlier, None) is not None:
            self._replaced.add(earlier)
            self._complete((wanted,))

    def ran_dry(self, now_ms: int) -> None:
        """Note that no message came: none is received, unless one in hand has to come again."""
        self._is_dry = True
        self._advance(now_ms)

    def written(self, batch: int, now_ms: int) -> None:
        """Note that the disk has confirmed the messages of a batch."""
        messages = self._writing.pop(batch)
        for each in messages:
            each.is_written = True
        self._act(batch, messages)
        self._advance(now_ms)

    def unwritten(self, batch: int, cause: str, now_ms: int) -> None:
        """End, as the undo file cannot be written."""
        self._put_back(self._writing.pop(batch))
        self._finish(TakingEnd.UNWRITTEN, cause)
        self._advance(now_ms)

    def sent(self, batch: int, outcome: SendOutcome, now_ms: int) -> None:
        """Take the outcome of a batch."""
        messages = self._sending.pop(batch)
        match outcome:
            case Accepted():
                self.attempts.answered()
                self.account.taken += len(messages)
                self._complete(messages)
            case Refused(condition, description):
                self.attempts.answered()
                self._on_refused(messages, f"{description} ({condition})")
            case Failed():
                for each in messages:
                    each.is_in_doubt |= outcome.is_in_doubt
                self.attempts.failed(outcome, now_ms)
                self._put_back(messages)
        self._advance(now_ms)

    def settled(self, keys: Iterable[int], now_ms: int, *, is_sure: bool = True) -> None:
        """Note that the source has confirmed settlements; not `is_sure`: they come again, perhaps.

        What was to be completed and comes again is completed, and not sent a second time.
        """
        for key in keys:
            if key in self._replaced:
                self._replaced.discard(key)
                continue
            wanted = self._completing.pop(key, None)
            if wanted is None:
                wanted = self._releasing.pop(key, None)
                self.account.gave_back(is_sure=is_sure)
                self.account.in_doubt += wanted is not None and wanted.is_in_doubt
            elif is_sure:
                self.account.completed += 1
            else:
                self.account.not_completed += 1
                self._is_dry = False
                self._unsure.add(wanted.received.identity)
        self._advance(now_ms)

    def renewed(self, keys: Iterable[int], lock_ms: int, now_ms: int) -> None:
        """Note that locks are valid for so long from now on."""
        self._renewals.locked(self._locked(keys), lock_ms, now_ms)

    def renewal_failed(self, keys: Iterable[int], now_ms: int) -> None:
        """Note that a renewal was not answered."""
        self._renewals.failed(self._locked(keys), now_ms)

    def lock_lost(self, keys: Iterable[int], now_ms: int) -> None:
        """Note that messages are not locked any more: they come again by themselves."""
        lost = set(keys)
        self._renewals.forget(lost)
        for key in (held := lost & self._held.keys()):
            del self._held[key]
        waiting = self._waiting.take(lost)
        self._is_dry &= not waiting
        self.account.looked_at -= len(waiting) + len(held)
        self._advance(now_ms)

    def source_lost(self, cause: str, now_ms: int) -> None:
        """End, as the source does not answer: what is in hand comes again when its locks end."""
        waiting = self._waiting.take_all()
        self.account.in_doubt += sum(each.is_in_doubt for each in waiting)
        self.account.left_locked += len(waiting) + len(self._held)
        self._renewals.forget((*keys_of(waiting), *self._held))
        self._held.clear()
        self._finish(TakingEnd.LOST, cause)
        self._advance(now_ms)

    def stop(self, now_ms: int) -> None:
        """Finish what is being sent, give back the rest, and end."""
        self._finish(TakingEnd.STOPPED, "it was stopped")
        self._advance(now_ms)

    def tick(self, now_ms: int) -> None:
        """Do what is due."""
        over_ms = self.attempts.over_ms
        if over_ms is not None and now_ms >= over_ms:
            self._finish(TakingEnd.AWAY, self.attempts.cause)
        self._give_up({*self._renewals.over(now_ms)})
        if due := self._renewals.take(now_ms):
            self._effects.append(Renew(due))
        self._advance(now_ms)

    def due_ms(self, now_ms: int) -> int | None:
        """Return when `tick` is to be called; `None`: nothing waits for a time."""
        if self._is_over:
            return None
        times = [self._renewals.due_ms]
        if self._end_of is None:
            times.append(self.attempts.over_ms)
            if self._waiting and now_ms < self.attempts.resume_at_ms:
                times.append(self.attempts.resume_at_ms)
            elif self._waiting and self._allowance.left(now_ms) == 0:
                times.append(self._allowance.next_ms())
        return min((each for each in times if each is not None), default=None)

    def _advance(self, now_ms: int) -> None:
        while self._waiting and self._may_begin(now_ms):
            left = self._allowance.left(now_ms)
            if left == 0:
                break
            messages = self._waiting.next_batch(left)
            self._allowance.take(len(messages))
            self._batch += 1
            if self.rules.is_written and not all(each.is_written for each in messages):
                self._writing[self._batch] = messages
                self._effects.append(Write(self._batch, keys_of(messages)))
            else:
                self._act(self._batch, messages)
        if self._end_of is None and not self._wanted and (self._is_dry or self._is_enough):
            self._finish(TakingEnd.DONE, "")
        if self._end_of is None and len(self._held) > self.rules.hold:
            self._finish(TakingEnd.HELD, "")
        in_hand = len(self._held) + self._wanted + len(self._releasing) + len(self._replaced)
        if self._end_of is not None and not self._is_over and not in_hand:
            self._is_over = True
            self._effects.append(TakingEnded(self._end_of, self.cause))

    @property
    def _is_enough(self) -> bool:
        return self.rules.limit is not None and self.account.taken >= self.rules.limit

    def _may_begin(self, now_ms: int) -> bool:
        if self._end_of is not None or now_ms < self.attempts.resume_at_ms:
            return False
        under_way = [*self._writing.values(), *self._sending.values()]
        if len(under_way) >= (
            1 if self.attempts.failing_since_ms is not None else self.rules.batches_max
        ):
            return False
        first = self._waiting.first
        return not first.is_ordered or all(
            each[0].received.group != first.group for each in under_way
        )

    def _act(self, batch: int, messages: Batch) -> None:
        """Send or complete messages that are written, if they are to be."""
        if self._end_of is not None:
            self._put_back(messages)
        elif self.rules.is_moving:
            self._sending[batch] = messages
            self._effects.append(Send(batch, keys_of(messages)))
        else:
            self.account.taken += len(messages)
            self._complete(messages)

    def _on_refused(self, messages: Batch, text: str) -> None:
        """Find the message that is refused by halves, and hold it."""
        if len(messages) > 1:
            self._put_back(messages, is_halved=True)
            return
        self._refuse(messages[0].received, text)
        if self._end_of is not None:
            self._give_back()

    def _refuse(self, received: Received, text: str) -> None:
        """Hold a message that cannot be taken."""
        self._held[received.key] = received
        if received.identity not in self._refused:
            self._refused.add(received.identity)
            self.account.refused.append((received.number, text))

    # -- the end

    def _finish(self, end: TakingEnd, cause: str) -> None:
        if self._end_of is None:
            self._end_of = end
            self.cause = cause
            self._give_back()

    def _put_back(self, messages: Batch, *, is_halved: bool = False) -> None:
        self._waiting.put_back(messages, is_halved=is_halved)
        if self._end_of is not None:
            self._give_back()

    def _give_back(self) -> None:
        """Give back what waits and what is held, in the order in which it was received."""
        found: dict[int, Wanted | None] = dict.fromkeys(self._held)
        found |= {each.received.key: each for each in self._waiting.take_all()}
        self._held.clear()
        if found:
            self._release(dict(sorted(found.items())))

    def _give_up(self, keys: set[int]) -> None:
        """Give back what was not renewed in time, before somebody else has it; it comes again."""
        found: dict[int, Wanted | None] = {key: None for key in self._held if key in keys}
        for key in found:
            del self._held[key]
        found |= {each.received.key: each for each in self._waiting.take(keys)}
        self._is_dry &= not any(found.values())
        self.account.looked_at -= len(found)
        if found:
            self._release(found)

    def _complete(self, messages: Iterable[Wanted]) -> None:
        found = {each.received.key: each for each in messages}
        self._completing |= found
        self._renewals.forget(found)
        self._effects.append(Complete(tuple(found)))

    def _release(self, messages: dict[int, Wanted | None]) -> None:
        self._releasing |= messages
        self._renewals.forget(messages)
        self._effects.append(Release(tuple(messages)))

    def _locked(self, keys: Iterable[int]) -> list[int]:
        """Return those that are in hand, and not being settled."""
        batches = (*self._writing.values(), *self._sending.values())
        wanted = {*keys_of(self._waiting), *(key for each in batches for key in keys_of(each))}
        return [each for each in keys if each in wanted or each in self._held]
