"""Transfers go to each target once, in the queue's order, whatever stops or fails meanwhile."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.machine.queue.transfer_order import TransferOrder

TARGETS = "abc"

Transfer = tuple[str, int]


class Play:
    """An order, its queue, and targets that take, stop or fail as chance has it."""

    def __init__(self, chance: st.DataObject) -> None:
        self.taken: list[Transfer] = []
        self.published: list[Transfer] = []
        self._chance = chance
        self._order: TransferOrder[Transfer] = TransferOrder()

    def come(self, target: str) -> None:
        """A message comes out of the queue."""
        message = target, len(self.published)
        self.published.append(message)
        self._order.came(target, message)

    def pass_on(self, *, is_last: bool) -> None:
        """Offer all once; in the last pass every target takes all."""
        stopped: set[str] = set()
        before = self.published.copy()
        under_way: list[tuple[int, Transfer]] = []
        while (found := self._order.next()) is not None:
            place, message = found
            target = message[0]
            assert target not in stopped, "what waits behind another one was offered"
            if not is_last and self._chance.draw(st.integers(0, 4)) == 0:
                self._order.stop(place, target, message)
                stopped.add(target)
            else:
                under_way.append((place, message))
        is_all = not stopped
        for place, message in self._chance.draw(st.permutations(under_way)):
            if not is_last and self._chance.draw(st.integers(0, 4)) == 0:
                self._order.failed(place, message[0], message)
                is_all = False
            else:
                self.taken.append(message)
        assert self._order.end_pass() is is_all
        assert len(self._order) == len(before) - len(self.taken)


@given(st.lists(st.sampled_from([*TARGETS, "pass"]), max_size=60), st.data())
def test_each_goes_once_and_what_waits_keeps_its_place(
    steps: list[str], chance: st.DataObject
) -> None:
    """Nothing is lost or offered twice; a target that stopped gets nothing out of order."""
    play = Play(chance)
    for step in steps:
        if step == "pass":
            play.pass_on(is_last=False)
        else:
            play.come(step)
    play.pass_on(is_last=True)
    assert sorted(play.taken) == sorted(play.published)


@given(st.lists(st.sampled_from([*TARGETS, "pass", "stop a"]), max_size=60))
def test_without_failures_each_target_has_the_order_of_the_queue(steps: list[str]) -> None:
    """Also the target that stops again and again."""
    order: TransferOrder[Transfer] = TransferOrder()
    came: list[Transfer] = []
    taken: list[Transfer] = []
    for step in [*steps, "pass"]:
        if step in TARGETS:
            came.append((step, len(came)))
            order.came(step, came[-1])
            continue
        while (found := order.next()) is not None:
            if step == "stop a" and found[1][0] == "a":
                order.stop(found[0], "a", found[1])
            else:
                taken.append(found[1])
        order.end_pass()
    for target in TARGETS:
        assert [each for each in taken if each[0] == target] == [
            each for each in came if each[0] == target
        ]
