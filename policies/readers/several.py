"""Several inputs as one: lists of `az`, ATOM feeds, or templates that deploy one namespace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

from bridge.model import entity as model
from bridge.topology import definitions
from policies.errors import Fault, Position, ReadError
from policies.readers import jsontext
from policies.readers.detect import read
from policies.readers.listing import Listing
from policies.readers.reading import Reading

_STAND_INS = frozenset({"Topic", "Subscription"})
"""Properties of findings that say that an entity was taken with defaults for want of its own."""


def read_all(
    given: Sequence[tuple[str, str]],
    *,
    form: str | None = None,
    parameters: Mapping[str, object] | None = None,
    vhost: str | None = None,
    namespace: str | None = None,
) -> Reading:
    """Return the namespace that several texts describe together; see `detect.read`.

    A parameter's value goes to every template that declares the parameter.

    Args:
        given: name and text of each input.

    Raises:
        ReadError: an input has faults, or the inputs contradict each other.
    """
    values = dict(parameters or {})
    readings = []
    for source, text in given:
        own = values if len(given) == 1 else _declared(text, values)
        reading = read(text, source, form=form, parameters=own, vhost=vhost, namespace=namespace)
        readings.append((source, reading))
    if len(given) > 1:
        _check_parameters(given, values)
    return joined(readings)


def _check_parameters(given: Sequence[tuple[str, str]], values: Mapping[str, object]) -> None:
    taken = {name for _, text in given for name in _declared(text, values)}
    for name in values:
        if name not in taken:
            message = f"No template has a parameter {name!r}."
            fault = Fault(place=Position(), message=message, remedy="Take it out.")
            raise ReadError(given[0][0], [fault])


def _declared(text: str, values: Mapping[str, object]) -> dict[str, object]:
    """Return the values of the parameters that a template declares; none for another text."""
    try:
        declared = jsontext.parse(text, "")["parameters"]
    except ReadError:
        return {}
    return {name: value for name, value in values.items() if name in declared}


def joined(readings: Sequence[tuple[str, Reading]]) -> Reading:
    """Return one reading made of several, which come with the names of their files.

    An entity that one input only refers to is taken from the input that defines it.

    Raises:
        ReadError: the inputs are of several namespaces, or define an entity in two ways.
    """
    if len(readings) == 1:
        return readings[0][1]
    first, faults = _base(readings), []
    found: dict[str, tuple[str, model.Entity]] = {}
    made_up = {name: _made_up(reading) for name, reading in readings}
    for source, reading in readings:
        for entity in definitions.entities(reading.namespace):
            path = entity.path.lower()
            there = found.get(path)
            if there is None or path in made_up[there[0]]:
                found[path] = (source, entity)
            elif path not in made_up[source] and _alone(there[1]) != _alone(entity):
                message = f"{entity.path!r} is defined otherwise in {there[0]}."
                faults.append((source, Fault(place=Position(), message=message, remedy=_REMEDY)))
    if faults:
        raise ReadError(faults[0][0], [fault for _, fault in faults])
    rules = _rules(readings, made_up)
    namespace = definitions.assemble(
        first, (_with_rules(entity, rules) for _, entity in found.values())
    )
    known = {path for path, (source, _) in found.items() if path not in made_up[source]}
    findings = tuple(
        each
        for _, reading in readings
        for each in reading.findings
        if not (each.property in _STAND_INS and each.entity.lower() in known)
        and not (each.property == "Rules" and each.entity.lower() in rules)
    )
    return Reading(
        namespace=namespace,
        findings=findings,
        left_out=tuple(each for _, reading in readings for each in reading.left_out),
        listing=_listing([reading for _, reading in readings]),
    )


def _listing(readings: Sequence[Reading]) -> Listing | None:
    """Return the lists of all inputs; `None` when an input without lists defines a namespace."""
    listings = [reading.listing for reading in readings]
    if any(each is None for each in listings):
        return None
    return reduce(Listing.joined, listings, Listing())


_REMEDY = "Remove it from one of them."


def _base(readings: Sequence[tuple[str, Reading]]) -> model.Namespace:
    """Return the namespace without entities: its name, and tier and access rules of the inputs."""
    nobody = model.Namespace()
    named = [(s, r.namespace) for s, r in readings if r.namespace.name != nobody.name]
    names = {namespace.name.lower(): namespace.name for _, namespace in named}
    if len(names) > 1:
        fault = Fault(
            place=Position(),
            message=f"The inputs are of {len(names)} namespaces: {', '.join(names.values())}.",
            remedy="Say which one with --namespace NAME: a RabbitMQ virtual host is one.",
        )
        raise ReadError(named[1][0], [fault])
    namespaces = [r.namespace for _, r in readings]
    rules = {rule.name.lower(): rule for each in namespaces for rule in each.authorization_rules}
    tiers = [each.tier for each in namespaces if each.tier is not nobody.tier]
    return replace(
        named[0][1] if named else nobody,
        tier=tiers[0] if tiers else nobody.tier,
        authorization_rules=tuple(rules.values()),
        queues=(),
        topics=(),
    )


def _rules(
    readings: Sequence[tuple[str, Reading]], made_up: Mapping[str, frozenset[str]]
) -> dict[str, tuple[model.Rule, ...]]:
    """Return the rules in inputs that do not define the rules' subscription, by its path."""
    return {
        subscription.path.lower(): subscription.rules
        for source, reading in readings
        for topic in reading.namespace.topics
        for subscription in topic.subscriptions
        if subscription.path.lower() in made_up[source]
    }


def _with_rules(entity: model.Entity, rules: Mapping[str, tuple[model.Rule, ...]]) -> model.Entity:
    if isinstance(entity, model.Subscription) and entity.path.lower() in rules:
        return replace(entity, rules=rules[entity.path.lower()])
    return entity


def _made_up(reading: Reading) -> frozenset[str]:
    return frozenset(
        each.entity.lower() for each in reading.findings if each.property in _STAND_INS
    )


def _alone(entity: model.Entity) -> model.Entity:
    return replace(entity, subscriptions=()) if isinstance(entity, model.Topic) else entity
