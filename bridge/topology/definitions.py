"""Entities as JSON: the form in which RabbitMQ keeps each entity's full definition.

Each entity has its own global parameter, so that two bridges that change two entities never
collide. Keys are those of ARM templates, and durations are ISO 8601, so that a person can write a
definition with `rabbitmqctl set_global_parameter`. An omitted field has Service Bus's default. A
field of a newer version has no effect; `unknown_fields` names it.

The kind says, too, whether the entity folds session ids (`FOLDED`): to a bridge of a version that
does not, such an entity is of no kind, and it neither numbers the entity's messages nor gives its
sessions. So it is with an entity that ever had a transaction (`TRANSACTIONAL`), and with one that
is held (`HELD`), for a bridge that begins meanwhile: one that knew the entity before goes on with
what it knew.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_type_hints
from urllib.parse import quote

from bridge.model import entity as model
from bridge.model.entity import EntityT
from bridge.model.errors import ArgumentError
from bridge.model.properties import MAKERS, kind_of
from bridge.topology.fields import read, written
from bridge.topology.json_objects import as_object
from bridge.topology.names import resource_base
from bridge.topology.resources import Finding, Parameter, Value
from bridge.topology.shards import count_of, with_shards

SCHEMA = 1
"""Version of the definitions' form. A newer version may add fields, and never changes the meaning
of a field."""

PREFIX = "busbridge.entity."
NAMESPACE_PREFIX = "busbridge.namespace."

NAME_LENGTH_MAX = 255
"""RabbitMQ keeps the names of global parameters as Erlang atoms; one of 300 fails (measured)."""

_VHOST_LENGTH_MAX = 80

FOLDED = " (session ids without case)"
"""Follows the kind of an entity that folds session ids."""

TRANSACTIONAL = " (transactional)"
"""Follows the kind of an entity that ever had a transaction."""

HELD = " (held)"
"""Follows the kind of an entity that is held, last."""

_PLAIN_KINDS = {kind.value.lower(): made for kind, made in MAKERS.items()}
_KINDS = {
    kind + folded + transactional + held: made
    for kind, made in _PLAIN_KINDS.items()
    for folded in ("", FOLDED)
    for transactional in ("", TRANSACTIONAL)
    for held in ("", HELD)
}
_SPECIAL_KEYS = {
    "max_size_mb": "maxSizeInMegabytes",
    "max_message_size_kb": "maxMessageSizeInKilobytes",
}
_WRITTEN_WHEN_GIVEN = frozenset(
    {
        "incarnation",
        "created_at",
        "updated_at",
        "status_before",
        "held",
        "transactional",
        "has_empty_user_metadata",
        "forward_to_scheme",
        "forward_dead_letters_scheme",
    }
)
_FORM_KEYS = frozenset({"schema", "kind"})

Json = dict[str, Value]


def parameter_prefix(vhost: str) -> str:
    """Return the prefix of the names of a virtual host's parameters."""
    return f"{PREFIX}{_vhost_part(vhost)}:"


def parameter_name(vhost: str, entity: str) -> str:
    """Return the name of the global parameter that holds an entity's definition.

    Args:
        entity: the entity's path, in any case.
    """
    name = parameter_prefix(vhost) + resource_base(entity)
    return name if len(name) <= NAME_LENGTH_MAX else _cut(name, NAME_LENGTH_MAX)


def namespace_parameter_name(vhost: str) -> str:
    """Return the name of the global parameter that holds the namespace's own properties."""
    return NAMESPACE_PREFIX + _vhost_part(vhost)


def parameters(namespace: model.Namespace, vhost: str) -> tuple[Parameter, ...]:
    """Return all global parameters of a namespace."""
    found = [Parameter(name=namespace_parameter_name(vhost), value=namespace_to_json(namespace))]
    found += [
        Parameter(name=parameter_name(vhost, entity.path), value=to_json(entity))
        for entity in entities(namespace)
    ]
    return tuple(found)


def entities(namespace: model.Namespace) -> tuple[model.Entity, ...]:
    """Return every entity of a namespace, each topic before its subscriptions."""
    found: list[model.Entity] = [*namespace.queues]
    for topic in namespace.topics:
        found += [topic, *topic.subscriptions]
    return tuple(found)


def incarnation_of(entity: model.Entity) -> str:
    """Return an entity's incarnation: no other entity of its name ever has this text.

    An entity whose definition has none (an older version or a person has written it) gets a digest
    of its path.
    """
    return entity.incarnation or hashlib.sha256(entity.path.lower().encode()).hexdigest()[:12]


def with_incarnations(
    wanted: model.Namespace,
    there: model.Namespace,
    make: Callable[[], str] = str,
    *,
    session_shards: int = 1,
    made_at: str = "",
    folds_session_ids: bool = False,
) -> model.Namespace:
    """Return a namespace with the incarnations, shard counts and times of the existing entities.

    Args:
        there: the existing entities.
        make: returns the incarnation of a new entity; "" leaves it to `incarnation_of`.
        session_shards: the shard count of a new session entity that does not set its own.
        made_at: the time of what is made or changed; "" leaves it unknown.
        folds_session_ids: whether new entities do, subscriptions of existing topics apart.
    """
    known = {each.path.lower(): each for each in entities(there)}
    found: list[model.Entity] = []
    for entity in entities(wanted):
        earlier = known.get(entity.path.lower())
        if earlier is not None:
            kept = _with_rule_times(with_origin(entity, earlier), earlier, made_at)
            if made_at and bare(kept) != bare(earlier):
                kept = dataclasses.replace(kept, updated_at=made_at)
            found.append(kept)
        else:
            made = dataclasses.replace(
                entity,
                incarnation=make(),
                created_at=entity.created_at or made_at,
                updated_at=entity.updated_at or made_at,
            )
            if folds_session_ids:
                made = with_folded_ids(made, _topic_of(made, known))
            found.append(with_shards(made, session_shards) if count_of(made) == 1 else made)
    return assemble(_with_times(wanted, there, made_at), found)


def _with_times(wanted: model.Namespace, there: model.Namespace, made_at: str) -> model.Namespace:
    """Return a namespace with the times of the existing one; it is as old as its first entity."""
    first = min((each.created_at for each in entities(there) if each.created_at), default=made_at)
    created_at = there.created_at or first
    own = (wanted.name, wanted.tier, wanted.authorization_rules)
    is_same = own == (there.name, there.tier, there.authorization_rules)
    updated_at = (there.updated_at if is_same else made_at) or created_at
    return dataclasses.replace(wanted, created_at=created_at, updated_at=updated_at)


def with_origin(entity: EntityT, there: model.Entity) -> EntityT:
    """Return an entity with what the existing one (`there`) was made with.

    That is its incarnation, its shard count, whether it folds session ids, its times, who holds it,
    and whether it had transactions.
    """
    made = dataclasses.replace(
        entity,
        incarnation=there.incarnation,
        folds_session_ids=there.folds_session_ids,
        held=there.held,
        transactional=there.transactional,
        created_at=entity.created_at or there.created_at,
        updated_at=entity.updated_at or there.updated_at,
    )
    return with_shards(made, count_of(there))


def _with_rule_times(entity: model.Entity, there: model.Entity, made_at: str) -> model.Entity:
    """Return a subscription whose rules have the times of those that exist; others are new."""
    if not isinstance(entity, model.Subscription) or not isinstance(there, model.Subscription):
        return entity
    known = {each.name.lower(): each.created_at for each in there.rules}
    rules = tuple(
        dataclasses.replace(
            each, created_at=each.created_at or known.get(each.name.lower(), made_at)
        )
        for each in entity.rules
    )
    return dataclasses.replace(entity, rules=rules)


def _topic_of(entity: model.Entity, known: Mapping[str, model.Entity]) -> model.Topic | None:
    """Return the topic of a subscription, if it is known."""
    topic = known.get(entity.topic.lower()) if isinstance(entity, model.Subscription) else None
    return topic if isinstance(topic, model.Topic) else None


def with_folded_ids(entity: EntityT, topic: model.Topic | None) -> EntityT:
    """Return a new entity that folds session ids; a subscription folds them if its topic does.

    Args:
        topic: the topic of a subscription that exists already, else `None`.
    """
    folds = topic is None or topic.folds_session_ids
    return dataclasses.replace(entity, folds_session_ids=folds)


def bare(entity: EntityT) -> EntityT:
    """Return an entity without the parts that have definitions of their own: subscriptions."""
    if isinstance(entity, model.Topic):
        return dataclasses.replace(entity, subscriptions=())
    return entity


def with_entity(base: model.Namespace, entity: model.Entity) -> model.Namespace:
    """Return a namespace with an entity added, in place of the one with the same path if any."""
    path = entity.path.lower()
    return assemble(base, [*(each for each in entities(base) if each.path.lower() != path), entity])


def standing(namespace: model.Namespace) -> model.Namespace:
    """Return a namespace without the entities that are being deleted."""
    found = entities(namespace)
    stay = [each for each in found if each.status is not model.EntityStatus.DELETING]
    return namespace if len(stay) == len(found) else assemble(namespace, stay)


def assemble(base: model.Namespace, found: Iterable[model.Entity]) -> model.Namespace:
    """Return a namespace of these entities, sorted by name, with `base`'s own properties.

    Subscriptions go to their topics; one whose topic is missing is left out.
    """
    everything = sorted(found, key=lambda entity: entity.path.lower())
    subscriptions: dict[str, list[model.Subscription]] = {}
    for each in everything:
        if isinstance(each, model.Subscription):
            subscriptions.setdefault(each.topic.lower(), []).append(each)
    topics = tuple(
        dataclasses.replace(topic, subscriptions=tuple(subscriptions.get(topic.name.lower(), ())))
        for topic in everything
        if isinstance(topic, model.Topic)
    )
    queues = tuple(each for each in everything if isinstance(each, model.Queue))
    return dataclasses.replace(base, queues=queues, topics=topics)


def to_json(entity: model.Entity) -> Json:
    """Return the JSON form of an entity; a topic without subscriptions.

    The form has every field but those that are None, and empty ones of `_WRITTEN_WHEN_GIVEN`.
    """
    kind = kind_of(entity).value.lower()
    kind += FOLDED if entity.folds_session_ids else ""
    kind += TRANSACTIONAL if entity.transactional else ""
    kind += HELD if entity.held else ""
    form: Json = {"schema": SCHEMA, "kind": kind}
    for field, key, _ in _FIELDS[type(entity)]:
        value = getattr(entity, field)
        if value is None or (field == "session_shards" and value == 1):
            continue  # one shard is left out, as in definitions from before shards
        if value or field not in _WRITTEN_WHEN_GIVEN:
            form[key] = written(field, value)
    return form


def from_json(form: Value | Mapping[str, Value]) -> model.Entity:
    """Return the entity of a JSON form; a topic has no subscriptions yet.

    Raises:
        ServiceBusError: a field is missing, malformed, or outside Service Bus's range.
    """
    form = as_object(form)
    kind = str(form.get("kind"))
    made = _KINDS.get(kind)
    if made is None:
        raise ArgumentError(f"{form.get('kind')!r} is no kind of entity.")
    try:
        folds = kind.removesuffix(HELD).removesuffix(TRANSACTIONAL).endswith(FOLDED)
        return made(**_arguments(made, form), folds_session_ids=folds)
    except TypeError as missing:
        raise ArgumentError(f"A definition of a {form['kind']} lacks a field: {missing}.") from None


def unknown_fields(form: Value | Mapping[str, Value]) -> tuple[Finding, ...]:
    """Return a finding for each field of an entity's JSON form that this version does not know."""
    form = as_object(form)
    made = _KINDS.get(str(form.get("kind")))
    known = {key for _, key, _ in _FIELDS[made]} if made else set()
    return tuple(
        Finding(
            entity=str(form.get("name", "")),
            property=key,
            grade="lost",
            message=f"The definition has the field {key!r}, which this version does not know "
            "(a newer one wrote it); it has no effect.",
        )
        for key in sorted(form.keys() - known - _FORM_KEYS)
    )


def namespace_to_json(namespace: model.Namespace) -> Json:
    """Return the JSON form of a namespace's own properties, without its entities."""
    form: Json = {
        "schema": SCHEMA,
        "kind": "namespace",
        "name": namespace.name,
        "tier": namespace.tier.value,
        "authorizationRules": written("authorization_rules", namespace.authorization_rules),
    }
    times = {"createdAt": namespace.created_at, "updatedAt": namespace.updated_at}
    return form | {key: time for key, time in times.items() if time}


def namespace_from_json(form: Value | Mapping[str, Value]) -> model.Namespace:
    """Return the namespace of a JSON form, without entities.

    Raises:
        ServiceBusError: a field is malformed.
    """
    form = as_object(form)
    if form.get("kind") != "namespace":
        raise ArgumentError(f"{form.get('kind')!r} is not a namespace.")
    return model.Namespace(**_arguments(model.Namespace, form))


_Fields = tuple[tuple[str, str, Any], ...]
"""The name, the key in JSON and the type of each field of a class."""


def _fields_of(made: type) -> _Fields:
    kinds = get_type_hints(made)
    return tuple(
        (field.name, _key(field.name), kinds[field.name])
        for field in dataclasses.fields(made)
        if field.name not in ("subscriptions", "queues", "topics", "folds_session_ids")
    )


def _key(field: str) -> str:
    first, *rest = field.removesuffix("_ms").split("_")
    return _SPECIAL_KEYS.get(field, first + "".join(word.capitalize() for word in rest))


_FIELDS: dict[type, _Fields] = {
    made: _fields_of(made) for made in (model.Namespace, *_PLAIN_KINDS.values())
}


def _arguments(made: type, form: Mapping[str, Value]) -> dict[str, Any]:
    return {
        field: read(kind, field, key, form[key])
        for field, key, kind in _FIELDS[made]
        if key in form
    }


def _vhost_part(vhost: str) -> str:
    part = quote(vhost, safe="")
    return part if len(part) <= _VHOST_LENGTH_MAX else _cut(part, _VHOST_LENGTH_MAX)


def _cut(name: str, length: int) -> str:
    digest = hashlib.sha256(name.encode()).hexdigest()[:24]
    return f"{name[: length - 25]}~{digest}"
