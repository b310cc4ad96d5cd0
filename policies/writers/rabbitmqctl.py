"""`rabbitmqctl`: one `set_policy` for each policy, the rest as a definitions import.

`rabbitmqctl` cannot declare an exchange, a queue or a binding. Policies come first: a queue is then
never without its own. Definitions go through a file: on standard input, 4.0 (with Erlang 27) waits
for their end for ever. Shovels come last: without their plugin all else is there.
"""

from __future__ import annotations

import json
from dataclasses import replace

from bridge.topology.resources import Policy, Topology
from policies.writers import bash, cmd, definitions, powershell
from policies.writers.output import DEFAULT_VHOST, Wanted, Written
from policies.writers.script import Command


def write_bash(wanted: Wanted) -> Written:
    """Return a script for bash (or any POSIX shell)."""
    return Written(text=bash.render(commands(wanted)))


def write_powershell(wanted: Wanted) -> Written:
    """Return a script for PowerShell 5.1 and 7, on Windows and elsewhere."""
    return Written(text=powershell.render(commands(wanted)))


def write_cmd(wanted: Wanted) -> Written:
    """Return a batch file for cmd.exe."""
    return Written(text=cmd.render(commands(wanted)))


def commands(wanted: Wanted) -> tuple[Command, ...]:
    """Return the commands that make a broker as wanted."""
    found = []
    if wanted.vhost != DEFAULT_VHOST:
        found.append(Command(words=("rabbitmqctl", "add_vhost", wanted.vhost), may_fail=True))
    found += [set_policy(policy, wanted.vhost) for policy in wanted.topology.policies]
    others = replace(wanted.topology, policies=(), shovels=())
    rest = definitions.document(others, DEFAULT_VHOST)
    if rest:
        document = definitions.document(others, wanted.vhost)
        document.pop("vhosts", None)
        found.append(Command(words=("rabbitmqctl", "import_definitions"), document=document))
    if wanted.topology.shovels:
        shovels = definitions.document(Topology(shovels=wanted.topology.shovels), wanted.vhost)
        shovels.pop("vhosts", None)
        found.append(Command(words=("rabbitmqctl", "import_definitions"), document=shovels))
    return tuple(found)


def set_policy(policy: Policy, vhost: str) -> Command:
    """Return the command that sets a policy or an operator policy."""
    verb = "set_operator_policy" if policy.is_operator else "set_policy"
    return Command(
        words=(
            "rabbitmqctl",
            "--vhost",
            vhost,
            verb,
            policy.name,
            policy.pattern,
            json.dumps(policy.definition, separators=(",", ":")),
            "--priority",
            str(policy.priority),
            "--apply-to",
            policy.apply_to,
        )
    )
