"""What a sequencer has made of one command: publications, and answers to senders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bridge.machine.inbox.arrival import Commit, ReplyTo
from bridge.machine.inbox.publication import Publication
from bridge.wire import stamp


class SenderAnswer(NamedTuple):
    """The answer to a waiting sender, given when every publication is confirmed.

    Attributes:
        after_all: the answer also waits for the confirms of all earlier publications.
    """

    to: ReplyTo
    body: bytes
    after_all: bool = False


class Unplaced(NamedTuple):
    """A scheduled message that has its number, and no bucket yet."""

    waiting: stamp.Waiting
    body: bytes


class Applied(NamedTuple):
    """The result of one command.

    Attributes:
        unplaced: the scheduled messages that the journal alone has: their buckets are not made yet,
            so the arrival stays unacked until each is in a bucket, or active.
        goes_on: the command that is to be carried out when the publications are confirmed, before
            anything else; only then the arrival is acked.
    """

    publications: Sequence[Publication]
    answer: SenderAnswer | None = None
    unplaced: Sequence[Unplaced] = ()
    goes_on: Commit | None = None
