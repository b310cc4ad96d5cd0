"""Writers: a module for each form in which a topology can be given to RabbitMQ.

Each writer is a function from a wanted topology to text; the same input gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable

from policies.writers import definitions, kubernetes, rabbitmqadmin, rabbitmqctl, terraform
from policies.writers.output import KubernetesPlace, Wanted, Written

WRITERS: dict[str, Callable[[Wanted], Written]] = {
    "bash": rabbitmqctl.write_bash,
    "powershell": rabbitmqctl.write_powershell,
    "cmd": rabbitmqctl.write_cmd,
    "rabbitmqadmin": rabbitmqadmin.write,
    "definitions": definitions.write,
    "kubernetes": kubernetes.write,
    "terraform": terraform.write,
}
"""Every writer, by its name on the command line."""

__all__ = ["WRITERS", "KubernetesPlace", "Wanted", "Written"]
