"""Reading definitions from the lists of RabbitMQ's management API: only changed texts are decoded.

`read_all` runs in a thread, while single definitions are read beside it; `accept` joins both.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from bridge.broker.management.listing import Row
from bridge.model import entity as model
from bridge.model.errors import ArgumentError
from bridge.topology import definitions
from bridge.topology.resources import Finding, Value


@dataclass(slots=True)
class Read:
    """What one read of all definitions has found.

    Attributes:
        base: the namespace's own properties; None when they are unreadable or have not changed.
        texts: the text of each definition, by its parameter's name.
        entities: the entities whose texts have changed, by their parameters' names.
        unreadable: errors of definitions that are unreadable since this read, by parameter.
        unknown: fields that this version does not know.
    """

    base: model.Namespace | None = None
    texts: dict[str, str] = field(default_factory=dict)
    entities: dict[str, model.Entity] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    unknown: list[Finding] = field(default_factory=list)


class DefinitionTexts:
    """The texts that were read last, and the entities' paths.

    Attributes:
        digest: of the last answer that was accepted whole; empty when single definitions may have
            changed since.
        unreadable: the parameters of definitions that are there and cannot be read.
    """

    def __init__(self, vhost: str) -> None:
        self.digest = b""
        self._vhost = vhost
        self._prefix = definitions.parameter_prefix(vhost)
        self._own_name = definitions.namespace_parameter_name(vhost)
        self._texts: dict[str, str] = {}
        self._paths: dict[str, str] = {}
        self.unreadable: set[str] = set()

    def read_all(self, rows: Sequence[Row]) -> Read:
        """Decode the definitions whose texts have changed."""
        found = Read()
        has_own = False
        for row in rows:
            name = row.value["name"]
            is_own = name == self._own_name
            has_own |= is_own
            if not is_own and not name.startswith(self._prefix):
                continue
            found.texts[name] = row.text
            if self._texts.get(name) == row.text:
                continue
            form = row.value["value"]
            try:
                if is_own:
                    found.base = definitions.namespace_from_json(form)
                else:
                    found.entities[name] = self._entity(name, form)
                    found.unknown += definitions.unknown_fields(form)
            except Exception as error:
                # Operators write definitions, too: an unreadable one must not hide the others.
                found.unreadable[name] = f"{type(error).__name__}: {error}"
        if not has_own:
            found.base = model.Namespace()
        return found

    def accept(
        self, read: Read, digest: bytes, *, newer: Collection[str]
    ) -> dict[str, model.Entity | None]:
        """Take a read over; return the changed entities by path, None for those that are gone.

        Args:
            digest: the answer's.
            newer: the paths of definitions that were read singly since the read began.
        """
        now: dict[str, model.Entity | None] = {}
        skipped = {definitions.parameter_name(self._vhost, path): path.lower() for path in newer}
        for name, entity in read.entities.items():
            if name not in skipped:
                now[entity.path.lower()] = entity
                self._paths[name] = entity.path.lower()
        for name in self._paths.keys() - read.texts.keys() - skipped.keys():
            now[self._paths.pop(name)] = None
        stay = self.unreadable & read.texts.keys() - read.entities.keys()
        self.unreadable = stay | (read.unreadable.keys() - skipped.keys())
        # A text that was not decoded, as it was known, may not be what is known by now.
        decoded = {*read.entities, *read.unreadable}
        if read.base is not None:
            decoded.add(self._own_name)
        self._texts = {
            name: text
            for name, text in read.texts.items()
            if name not in skipped and (name in decoded or self._texts.get(name) == text)
        }
        is_whole = not skipped and len(self._texts) == len(read.texts)
        self.digest = digest if is_whole else b""
        return now

    def accept_one(
        self, name: str, path: str, form: Value
    ) -> tuple[Mapping[str, model.Entity | None], str]:
        """Take one definition over; return its entity by path, and why it is unreadable, or ""."""
        self.digest = b""
        self._texts.pop(name, None)
        self.unreadable.discard(name)
        if form is None:
            self._paths.pop(name, None)
            return {path.lower(): None}, ""
        try:
            entity = self._entity(name, form)
        except Exception as error:
            self.unreadable.add(name)
            return {}, f"{type(error).__name__}: {error}"
        self._paths[name] = path.lower()
        return {path.lower(): entity}, ""

    def _entity(self, name: str, form: Value) -> model.Entity:
        entity = definitions.from_json(form)
        own = definitions.parameter_name(self._vhost, entity.path)
        if name != own:
            raise ArgumentError(f"this entity's parameter is {own!r}")
        return entity
