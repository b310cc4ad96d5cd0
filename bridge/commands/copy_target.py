"""Where commands send copies to: the entity, the way to it, and whether it would drop them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.commands.errors import WrongInput
from bridge.commands.output import Output
from bridge.commands.target import NamespaceLogin

if TYPE_CHECKING:
    from bridge.relay.running.outlet import Outlet, ToldNumbers
    from bridge.remote.namespace import RemoteNamespace

_SUBSCRIPTIONS = "/subscriptions/"


def target_path(path: str, given: str | None) -> str:
    """Return where messages of a path are sent to; WrongInput: it is no entity that takes them.

    Args:
        given: what the user names; `None`: the path's own queue, or its subscription's topic.
    """
    from bridge.model.name import parse_path

    if given is None:
        return topic_of(parse_path(path).entity)[0]
    found = parse_path(given)
    if found.sub_queue.value or found.is_management or "/rules/" in found.key:
        raise WrongInput(
            f"--to {given!r}: messages are sent to a queue, a topic, or a topic's subscription."
        )
    return found.entity


def topic_of(to: str) -> tuple[str, str | None]:
    """Return the queue or topic of a target, and the only subscription that gets the messages."""
    at = to.lower().find(_SUBSCRIPTIONS)
    return (to, None) if at < 0 else (to[:at], to[at + len(_SUBSCRIPTIONS) :])


async def opened_outlet(
    namespace: RemoteNamespace,
    source: str,
    to: str,
    output: Output,
    numbers: ToldNumbers | None = None,
) -> Outlet:
    """Return the way to the target, attached; with the right Manage it knows what comes twice.

    Args:
        numbers: what the target may forget of the source (default: nothing).
    """
    from bridge.commands.copies import EveryNumber
    from bridge.relay.running.outlet import Outlet
    from bridge.remote.errors import RemoteUnauthorized

    entity, only = topic_of(to)
    outlet = Outlet(namespace, entity, source, numbers or EveryNumber(), only)
    try:
        await outlet.open()
    except RemoteUnauthorized:
        if only is not None:
            raise
        outlet = Outlet(namespace, to, None, EveryNumber())
        await outlet.open()
        output.say(
            f"There is no right Manage on {to}: a message that is sent again after a failure may "
            "be there twice."
        )
    return outlet


async def check_duplicates(target: NamespaceLogin, to: str, output: Output) -> None:
    """Refuse a target that would drop a message as a duplicate, and lose it.

    It is one of its own original; or of another, where one id is set for several.

    Raises:
        WrongInput: it detects duplicates.
    """
    from bridge.commands.asking import asking
    from bridge.remote.errors import RemoteError

    way = "Give each an id of its own by --new-id"
    try:
        async with asking(target, output) as administration:
            found = await administration.find(topic_of(to)[0])
    except RemoteError:
        output.say(
            f"It cannot be asked whether {to} detects duplicates (right Manage): if it does, it "
            f"drops what was sent to it shortly before. {way}."
        )
        return
    if found.properties.get("RequiresDuplicateDetection", "").lower() == "true":
        window = found.properties.get("DuplicateDetectionHistoryTimeWindow", "a while")
        raise WrongInput(
            f"{to} detects duplicates, for {window}: it would drop what was sent to it within this "
            f"time, and the message would be lost. {way}."
        )
