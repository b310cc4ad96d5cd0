"""What every writer is given, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge.topology.capabilities import Capabilities
from bridge.topology.resources import Finding, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesPlace:
    """Where objects of Kubernetes are made, and for which RabbitmqCluster.

    Attributes:
        namespace: that of the objects; "" leaves it to `kubectl --namespace`.
        cluster: the name of the RabbitmqCluster.
        cluster_namespace: where that is; "" is the namespace of the objects.
    """

    namespace: str = ""
    cluster: str = "rabbitmq"
    cluster_namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A compiled namespace and where it shall go.

    Attributes:
        topology: parameters included, in the bridge's flavour.
        vhost: the vhost's name; it is created if it is not there, unless it is `/`.
        target: the RabbitMQ that takes the output.
        kubernetes: where the objects of Kubernetes belong.
    """

    topology: Topology
    vhost: str
    target: Capabilities
    kubernetes: KubernetesPlace = field(default_factory=KubernetesPlace)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A writer's text, and what the format had no words for."""

    text: str
    findings: tuple[Finding, ...] = ()


DEFAULT_VHOST = "/"
"""The vhost that every RabbitMQ has."""


def lost_parameters(wanted: Wanted, title: str) -> tuple[Finding, ...]:
    """Return the finding of a format that has no word for global parameters."""
    if not wanted.topology.parameters:
        return ()
    return (
        Finding(
            entity="",
            property="definitions",
            grade="by the bridge",
            message=f"{title} has no global parameters: the entities' definitions are not in this "
            "output. 'busbridge policies apply' or 'busbridge serve --config' writes them.",
        ),
    )


def lost_shovels(wanted: Wanted, why: str) -> tuple[Finding, ...]:
    """Return the finding of a format in which a shovel could come before its queue."""
    return tuple(
        Finding(
            entity="",
            property="ForwardTo",
            grade="lost",
            message=f"The shovel {shovel.name!r} is not in this output: {why}, and would make "
            "another queue of its name. Make it afterwards with 'busbridge policies apply'.",
        )
        for shovel in wanted.topology.shovels
    )
