"""The plain flavour: as much of a namespace as RabbitMQ can express, without a bridge.

An application finds an entity under its own name. The queue's arguments say where dead letters go.
All other settings are in policies, which entities with equal settings share. An existing quorum
queue without such arguments is kept as it is; a policy of its own has the dead-lettering, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from urllib.parse import quote

from bridge.model import entity as model
from bridge.model.duration import is_forever
from bridge.model.errors import EntityConflict
from bridge.model.forwarding import comes_back, target_of
from bridge.topology import names, parts
from bridge.topology.capabilities import DELIVERY_LIMIT_MAX, TTL_MAX_MS, Capabilities
from bridge.topology.compiler import compile  # noqa: A004 - the compiler's one verb
from bridge.topology.flavour import queue_settings
from bridge.topology.policy import PREFIX, PRIORITY, PROTECTED_PRIORITY, Ceiling, winners
from bridge.topology.resources import Binding, Exchange, Finding, Queue, Shovel, Topology, Value
from bridge.topology.selection import selection
from bridge.topology.sharing import Sharing

_SUBSCRIPTIONS = "/Subscriptions/"


def compile_plain(
    namespace: model.Namespace,
    capabilities: Capabilities,
    *,
    priority: int = PRIORITY,
    ceiling: Ceiling | None = None,
    folds_names: bool = False,
    there: Topology | None = None,
    keeps_others: bool = False,
    vhost: str = "/",
) -> Topology:
    """Return the plain flavour of a namespace.

    Args:
        folds_names: RabbitMQ's names are in lower case; otherwise as given.
        there: the existing resources of the virtual host.
        keeps_others: existing queues with a policy of the bridge that are not in the namespace keep
            the policy's settings.
        vhost: the virtual host; the addresses of shovels name it.

    Raises:
        EntityConflict: two entities would need resources of one name, or the names of an entity and
            of an existing resource differ by case only.
    """
    flavour = Plain(
        folds_names=folds_names,
        there=there or Topology(),
        keeps_others=keeps_others,
        vhost=vhost,
    )
    return compile(
        namespace,
        capabilities,
        flavour=flavour,
        priority=priority,
        ceiling=ceiling,
        sharing=Sharing(live=flavour.there.policies),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """The plain flavour for one virtual host, whose existing resources are `there`."""

    folds_names: bool = False
    there: Topology = field(default_factory=Topology)
    keeps_others: bool = False
    vhost: str = "/"

    def pieces(self, namespace: model.Namespace, capabilities: Capabilities) -> Iterator[Topology]:
        """Yield the resources that all entities share, then those of each entity."""
        self._check_names(namespace)
        targets = {name.lower(): name for name in _front_names(namespace)}
        yield Topology(
            exchanges=(parts.fixed_exchange(names.OTHER_DEATHS, "direct"),), queues=(parts.sink(),)
        )
        for queue in namespace.queues:
            yield self._dead_letters(queue.name, queue, targets)
            yield self._queue(queue)
            yield self._forwarding(queue.name, queue, namespace, capabilities)
        for topic in namespace.topics:
            exchange = parts.fixed_exchange(self.name(topic.name), "headers")
            yield Topology(exchanges=(exchange,))
            for subscription in topic.subscriptions:
                path = _path(topic, subscription)
                yield self._dead_letters(path, subscription, targets)
                yield self._subscription(topic, subscription, capabilities)
                yield self._forwarding(path, subscription, namespace, capabilities)

    def made_on_use(self, namespace: model.Namespace) -> tuple[Queue, ...]:
        """Return nothing: without a bridge nobody makes a queue later."""
        return ()

    def settings(self, namespace: model.Namespace) -> dict[str, dict[str, Value]]:
        """Return the policy settings of each queue, by the queue's name."""
        found: dict[str, dict[str, Value]] = {}
        for queue in namespace.queues:
            name = self.name(queue.name)
            found[name] = self._settings(name, queue, queue_settings(queue))
        for topic in namespace.topics:
            for each in topic.subscriptions:
                name = self.name(_path(topic, each))
                found[name] = self._settings(name, each, queue_settings(each, topic))
        if self.keeps_others:
            found = {**_kept(self.there), **found}
        return found

    def name(self, path: str) -> str:
        """Return the name of an entity's queue or exchange in RabbitMQ."""
        if self.folds_names:
            return names.resource_base(path)
        return names.legal(path.replace(_SUBSCRIPTIONS, _SUBSCRIPTIONS.lower()))

    def _check_names(self, namespace: model.Namespace) -> None:
        paths = _front_names(namespace)
        paths += [_path(topic, each) for topic in namespace.topics for each in topic.subscriptions]
        wanted: dict[str, str] = {}
        for name in map(self.name, paths):
            if (other := wanted.setdefault(name.lower(), name)) != name:
                raise EntityConflict(
                    f"The names {other!r} and {name!r} differ by case only; Service Bus takes them "
                    "for one. Rename one of them."
                )
        there: list[Queue | Exchange] = [*self.there.queues, *self.there.exchanges]
        for resource in there:
            name = wanted.get(resource.name.lower(), resource.name)
            if name != resource.name and parts.SCHEMA_ARGUMENT in resource.arguments:
                raise EntityConflict(
                    f"RabbitMQ has {resource.name!r}, which differs from {name!r} by case only. "
                    + _remedy(resource.name)
                )

    def _queue(self, queue: model.Queue) -> Topology:
        name = self.name(queue.name)
        return Topology(
            exchanges=(parts.fixed_exchange(name, "fanout"),),
            queues=(self._active(name),),
            bindings=(Binding(source=name, destination=name),),
        )

    def _subscription(
        self, topic: model.Topic, subscription: model.Subscription, capabilities: Capabilities
    ) -> Topology:
        """Return a subscription's queue, and its rules as bindings of the topic's headers exchange.

        A rule that RabbitMQ cannot express becomes a finding.
        """
        source, name = self.name(topic.name), self.name(_path(topic, subscription))
        bindings: list[Binding] = []
        findings: list[Finding] = []
        for rule in subscription.rules:
            arguments, reason = selection(rule, capabilities)
            if arguments is not None:
                binding = Binding(source=source, destination=name, arguments=arguments)
                bindings += [binding] if binding not in bindings else []
            if reason:
                found = f"Rule {rule.name!r}: {reason}."
                findings.append(
                    Finding(entity=subscription.path, property="Rules", grade="lost", message=found)
                )
        return Topology(
            queues=(self._active(name),), bindings=tuple(bindings), findings=tuple(findings)
        )

    def _active(self, name: str) -> Queue:
        arguments: dict[str, Value] = {"x-queue-type": "quorum"}
        if not self._is_bare(name):
            arguments |= parts.dead_lettering(*_dead(name))
        return Queue(name=name, arguments=arguments | parts.SCHEMA)

    def _is_bare(self, name: str) -> bool:
        """Whether a quorum queue exists without further arguments, which it cannot get any more."""
        return any(
            queue.name == name and _fixed(queue) == {"x-queue-type": "quorum"}
            for queue in self.there.queues
        )

    def _dead_letters(
        self, path: str, entity: model.Queue | model.Subscription, targets: dict[str, str]
    ) -> Topology:
        """Return an entity's dead-letter exchange, queue and bindings, much as with the bridge.

        The dead-letter queue has no consumer timeout argument. Forwarded dead letters go to their
        target at once, and the entity has no dead-letter queue then.
        """
        exchange, dead = _dead(self.name(path))
        keeps_expired = entity.dead_lettering_on_message_expiration
        found = parts.dead_letters(exchange, dead, keeps_expired=keeps_expired)
        target = entity.forward_dead_lettered_messages_to
        if target.lower() in targets:
            front = self.name(targets[target.lower()])
            bindings = (
                replace(binding, destination=front, to_exchange=True)
                if binding.destination == dead
                else binding
                for binding in found.bindings
            )
            return replace(found, queues=(), bindings=tuple(bindings))
        arguments: dict[str, Value] = {
            "x-queue-type": "quorum",
            "x-delivery-limit": DELIVERY_LIMIT_MAX,
            **parts.SCHEMA,
        }
        finding = Finding(
            entity=path,
            property="ForwardDeadLetteredMessagesTo",
            grade="lost",
            message=f"The namespace has no {target!r}; dead letters stay in {dead!r}.",
        )
        queue = Queue(name=dead, arguments=arguments)
        return replace(found, queues=(queue,), findings=(finding,) if target else ())

    def _forwarding(
        self,
        path: str,
        entity: model.Queue | model.Subscription,
        namespace: model.Namespace,
        capabilities: Capabilities,
    ) -> Topology:
        """Return the shovel of an entity that forwards, with findings.

        Before 4.0 the shovel must come after its queue: a shovel declares a missing queue, as a
        classic one, and 3.10 fails at a shovel that names the queue's arguments (measured).
        """
        if not entity.forward_to:
            return Topology()
        name = self.name(path)
        if not target_of(entity):
            return _forwards(path, f"The entity requires sessions: messages stay in {name!r}.")
        fronts = {each.lower(): each for each in _front_names(namespace)}
        target = fronts.get(entity.forward_to.lower())
        if target is None:
            return _forwards(
                path, f"The namespace has no {entity.forward_to!r}: messages stay in {name!r}."
            )
        if comes_back(entity, namespace):
            return _forwards(
                path,
                f"{target!r} forwards back to it, and RabbitMQ has no limit of hops: messages stay "
                f"in {name!r}.",
            )
        uri = "amqp:///" + quote(self.vhost, safe="")
        value: dict[str, Value] = {
            "src-protocol": "amqp091",
            "src-uri": uri,
            "src-queue": name,
            "dest-protocol": "amqp091",
            "dest-uri": uri,
            "dest-exchange": self.name(target),
            "ack-mode": "on-confirm",
        }
        if capabilities.has_predeclared_shovels:
            value["src-predeclared"] = True
        found = _forwards(
            path,
            f"A shovel moves messages on to {target!r} (RabbitMQ's plugin rabbitmq_shovel, on all "
            "nodes). Service Bus's limit of hops and its transfer dead letters are lost: what the "
            f"target refuses stays in {name!r} and is tried again.",
        )
        return replace(found, shovels=(Shovel(name=PREFIX + name, value=value),))

    def _settings(
        self,
        name: str,
        entity: model.Queue | model.Subscription,
        settings: dict[str, Value],
    ) -> dict[str, Value]:
        if not is_forever(entity.auto_delete_on_idle_ms):
            settings["expires"] = min(entity.auto_delete_on_idle_ms, TTL_MAX_MS)
        if self._is_bare(name):
            fixed = parts.dead_lettering(*_dead(name))
            settings |= {key.removeprefix("x-"): value for key, value in fixed.items()}
        return settings


def _front_names(namespace: model.Namespace) -> list[str]:
    """Return the names of the entities to which messages are sent: queues and topics."""
    return [queue.name for queue in namespace.queues] + [each.name for each in namespace.topics]


def _forwards(path: str, message: str) -> Topology:
    finding = Finding(entity=path, property="ForwardTo", grade="lost", message=message)
    return Topology(findings=(finding,))


def _path(topic: model.Topic, subscription: model.Subscription) -> str:
    """Return a subscription's path, with the topic's name as the topic itself spells it."""
    return f"{topic.name}{_SUBSCRIPTIONS}{subscription.name}"


def _kept(there: Topology) -> dict[str, dict[str, Value]]:
    """Return the settings of all queues that have a policy of the bridge, from that policy."""
    ours = [
        policy
        for policy in there.policies
        if policy.name.startswith(PREFIX)
        and not policy.is_operator
        and policy.priority < PROTECTED_PRIORITY
    ]
    return {
        queue.name: dict(found[0].definition)
        for queue in there.queues
        if (found := winners(queue, ours))
    }


def _dead(name: str) -> tuple[str, str]:
    """Return the names of a queue's dead-letter exchange and dead-letter queue."""
    return name + names.DLX_SUFFIX, name + names.DEAD_LETTER_SUFFIX


def _fixed(queue: Queue) -> dict[str, Value]:
    return {key: value for key, value in queue.arguments.items() if key.startswith("x-")}


def _remedy(name: str) -> str:
    if name == name.lower():
        return "Say --names lower to go on with lower case."
    return "Spell it as it is there, or take that away first."
