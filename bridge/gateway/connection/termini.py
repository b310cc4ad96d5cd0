"""What a client asks of the source or target at the gateway's end; what is not there is refused."""

from __future__ import annotations

from typing import Any

from bridge.gateway.client import texts
from bridge.gateway.links.sessions import is_shared
from bridge.gateway.links.subscribing import is_subscriber
from bridge.gateway.links.temporary_queues import asks_for_queue
from bridge.machine.amqp10.termini import MOVE
from bridge.model.errors import NotAllowed, NotImplementedHere
from bridge.wire.amqp10.performatives import Source, Target
from bridge.wire.link_properties import SESSION_FILTER


def check(asked: Any, link_name: str) -> None:
    """Check the source of a receiver's attach, or the target of a sender's.

    Raises:
        NotImplementedHere: a dynamic node, a browser, or a filter that the gateway does not know: a
            client that went on would believe that it is in force.
        NotAllowed: a session that another receiver may take over.
    """
    if isinstance(asked, Source | Target) and asked.dynamic and not asks_for_queue(asked):
        raise NotImplementedHere(texts.DYNAMIC_NOT_HERE)
    if not isinstance(asked, Source):
        return
    if asked.distribution_mode not in (None, MOVE) and not is_subscriber(asked):
        raise NotImplementedHere(texts.COPY_NOT_HERE.format(mode=asked.distribution_mode))
    for name, wanted in (asked.filter or {}).items():
        if is_shared(wanted):
            raise NotAllowed(texts.SESSIONS_ARE_EXCLUSIVE.format(link=link_name))
        if name != SESSION_FILTER:
            raise NotImplementedHere(texts.FILTER_NOT_HERE.format(name=name))
