"""Input and output of every writer."""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge.topology.capabilities import Capabilities
from bridge.topology.resources import Finding, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesPlace:
    """The namespace for the objects of Kubernetes, and their RabbitmqCluster.

    Attributes:
        namespace: the namespace of the objects; "" leaves it to `kubectl --namespace`.
        cluster: the name of the RabbitmqCluster.
        cluster_namespace: the namespace of the cluster; "" is the namespace of the objects.
    """

    namespace: str = ""
    cluster: str = "rabbitmq"
    cluster_namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A compiled namespace and its target.

    Attributes:
        topology: the objects; in the bridge's flavour with the global parameters.
        vhost: the vhost's name; the output creates the vhost unless it is `/`.
        target: the capabilities of the RabbitMQ that takes the output.
        kubernetes: where the objects of Kubernetes belong.
    """

    topology: Topology
    vhost: str
    target: Capabilities
    kubernetes: KubernetesPlace = field(default_factory=KubernetesPlace)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A writer's text, and a finding for each object that the format cannot express."""

    text: str
    findings: tuple[Finding, ...] = ()


DEFAULT_VHOST = "/"
"""The vhost that every RabbitMQ has."""


def lost_parameters(wanted: Wanted, title: str) -> tuple[Finding, ...]:
    """Return the finding of a format without global parameters, if the topology has any."""
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
    """Return a finding for each shovel, for a format that may make a shovel before its queue."""
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
