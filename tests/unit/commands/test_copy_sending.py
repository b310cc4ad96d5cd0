"""Copies of a file's messages are sent in order, and the record is never ahead of the target."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.commands.copy_sending import CopySending, CopyToSend
from bridge.relay.machine.effects import Accepted, Failed, Refused, SendOutcome
from bridge.relay.running.outlet import Outlet
from bridge.remote.message import RemoteMessage
from tests.fixtures.examples import examples

OUTCOMES = ("accepted", "refused", "away", "doubt", "lost answer", "rights")


class ScriptedOutlet(Outlet):
    """The way to a target that answers as it is told, and numbers each message once if it can.

    Attributes:
        taken: the lines that it has, in order.
    """

    def __init__(self, script: list[str], bad: set[int], *, knows: bool) -> None:
        self._script = script
        self._bad = bad
        self._knows = knows
        self.taken: list[int] = []

    @property
    def knows_source(self) -> bool:
        """Whether it knows what comes twice."""
        return self._knows

    @property
    def batch_bytes_max(self) -> int:
        """Bytes of three or four messages."""
        return 800

    async def send(self, batch: Sequence[tuple[RemoteMessage, int, int]]) -> SendOutcome:
        """Answer with what is next in the script; a target refuses a bad message, or its batch."""
        numbers = [number for _, number, _ in batch]
        word = self._script.pop() if self._script else "accepted"
        if word == "rights":
            return Failed("no right", 0, is_of_rights=True, is_in_doubt=False)
        if word in ("away", "doubt"):
            return Failed("away", 0, is_in_doubt=word == "doubt")
        if self._bad & set(numbers) or (word == "refused" and len(batch) > 1):
            return Refused("refused", "refused")
        self.taken += [each for each in numbers if not (self._knows and each in self.taken)]
        return Failed("away", 0) if word == "lost answer" else Accepted()


def copy(line: int) -> CopyToSend:
    """Return a line's message."""
    body = b"\x00Su\xa0\x08%08d" % line
    return CopyToSend(RemoteMessage(body=body), line, 0, line)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.integers(0, 30),
    st.lists(st.sampled_from(OUTCOMES), max_size=12),
    st.sets(st.integers(1, 30), max_size=3),
    st.sets(st.integers(1, 30), max_size=3),
    st.booleans(),
)
def test_each_message_is_there_or_named_whatever_the_target_answers(
    count: int, script: list[str], bad: set[int], unfit: set[int], knows: bool
) -> None:
    """Commands one after the other; where the target knows what comes twice, once and in order.

    Elsewhere no more are there twice than were in doubt.
    """
    outlet = ScriptedOutlet(script, bad, knows=knows)
    record, refused, doubts = 0, [], 0

    def note(line: int) -> None:
        nonlocal record
        missing = set(range(1, line + 1)) - bad - unfit - set(outlet.taken)
        assert not missing, "the record is never ahead of the target"
        record = line

    async def command() -> CopySending:
        asked = asyncio.Event()
        sending = CopySending(outlet, note, asked, record, outage_s=0)
        for line in range(record + 1, count + 1):
            if line in unfit:
                sending.refuse(line, "unfit")
                continue
            await sending.add(copy(line))
            if sending.stopped:
                break
        await sending.flush()
        return sending

    for _ in range(len(script) + 1):
        sending = asyncio.run(command())
        refused += sending.refused
        doubts += sending.in_doubt
        if not sending.stopped:
            break
    assert not sending.stopped
    wanted = [line for line in range(1, count + 1) if line not in bad | unfit]
    assert sorted(set(outlet.taken)) == wanted
    if knows:
        assert outlet.taken == wanted
    else:
        assert len(outlet.taken) - len(wanted) <= doubts
    for line in (bad | unfit) & set(range(1, count + 1)):
        assert any(text.startswith(f"line {line}:") for text in refused)
