"""The target of a request to the administration API, read from its path."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from urllib.parse import unquote

from bridge.model.errors import ArgumentError


class What(Enum):
    """The kind of a target."""

    NAMESPACE = auto()
    QUEUES = auto()
    TOPICS = auto()
    ENTITY = auto()
    SUBSCRIPTIONS = auto()
    SUBSCRIPTION = auto()
    RULES = auto()
    RULE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class AtomTarget:
    """The target of a request; names are as the client wrote them.

    Attributes:
        entity: the name of a queue or topic; "" for the namespace and the lists of entities.
    """

    what: What
    entity: str = ""
    subscription: str = ""
    rule: str = ""

    @property
    def path(self) -> str:
        """The path in Azure's capitals, by which JavaScript's SDK finds the names in it."""
        match self.what:
            case What.NAMESPACE:
                return "$namespaceinfo"
            case What.QUEUES:
                return "$Resources/Queues"
            case What.TOPICS:
                return "$Resources/Topics"
        path = self.entity
        if self.what is not What.ENTITY:
            path += "/Subscriptions"
        if self.subscription:
            path += f"/{self.subscription}"
        if self.what in (What.RULES, What.RULE):
            path += "/Rules"
        return f"{path}/{self.rule}" if self.rule else path


_LISTS = {"queues": What.QUEUES, "topics": What.TOPICS}


def parse_target(raw_path: str) -> AtomTarget:
    """Return the target of a request from its percent-encoded path.

    Entity names may have slashes, so the path is read from the right. The words between the names
    are not case-sensitive.

    Raises:
        ArgumentError: the path is not UTF-8, or that of a sub-queue, which is described by its
            entity.
    """
    try:
        names = unquote(raw_path.partition("?")[0], errors="strict").strip("/").split("/")
    except UnicodeDecodeError:
        raise ArgumentError("The path of the request is not UTF-8.") from None
    words = [name.lower() for name in names]
    match words:
        case ["$namespaceinfo"]:
            return AtomTarget(what=What.NAMESPACE)
        case ["$resources", ("queues" | "topics") as which]:
            return AtomTarget(what=_LISTS[which])
        case [_, *_, "subscriptions", _, "rules", _]:
            found = AtomTarget(what=What.RULE, subscription=names[-3], rule=names[-1])
        case [_, *_, "subscriptions", _, "rules"]:
            found = AtomTarget(what=What.RULES, subscription=names[-2])
        case [_, *_, "subscriptions", _]:
            found = AtomTarget(what=What.SUBSCRIPTION, subscription=names[-1])
        case [_, *_, "subscriptions"]:
            found = AtomTarget(what=What.SUBSCRIPTIONS)
        case [_, *_, last] if last.startswith("$"):
            raise ArgumentError(
                f"'{'/'.join(names)}' is the path of a sub-queue, which is no entity: ask for the "
                "entity that it belongs to."
            )
        case _:
            return AtomTarget(what=What.ENTITY, entity="/".join(names))
    cut = {What.RULE: 4, What.RULES: 3, What.SUBSCRIPTION: 2, What.SUBSCRIPTIONS: 1}[found.what]
    entity = "/".join(names[:-cut])
    return AtomTarget(
        what=found.what, entity=entity, subscription=found.subscription, rule=found.rule
    )
