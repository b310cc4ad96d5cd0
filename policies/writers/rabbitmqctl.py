"""`rabbitmqctl`: one `set_policy` for each policy, the rest as a definitions import.

`rabbitmqctl` cannot declare an exchange, a queue or a binding. Policies come first: a queue is then
never without its policy. Definitions go through a file: on standard input, 4.0 (with Erlang 27)
waits for their end for ever. Shovels come last: they fail without their plugin, after all else is
done.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bridge.topology.parts import SCHEMA_ARGUMENT
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
    """Return the commands that create the wanted objects."""
    found = []
    if wanted.vhost != DEFAULT_VHOST:
        found.append(Command(words=("rabbitmqctl", "add_vhost", wanted.vhost), may_fail=True))
    found += checks(wanted)
    found += [set_policy(policy, wanted.vhost) for policy in wanted.topology.policies]
    for part in (
        replace(wanted.topology, policies=(), shovels=()),
        Topology(shovels=wanted.topology.shovels),
    ):
        if document := definitions.document(part, wanted.vhost):
            found.append(Command(words=("rabbitmqctl", "import_definitions"), document=document))
    return tuple(found)


def checks(wanted: Wanted) -> list[Command]:
    """Return commands that fail when a wanted queue is there already and is not ours.

    Such a queue has another type or lacks our arguments, the dead-letter exchange among them.
    `import_definitions` leaves it as it is and reports nothing. The commands look up only names
    that an application would use (without `$`), and name the first wrong queue.
    """
    rows = [
        f"{{{_binary(queue.name)},rabbit_{queue.arguments['x-queue-type']}_queue}}"
        for queue in wanted.topology.queues
        if "$" not in queue.name
    ]
    return [
        Command(words=("rabbitmqctl", "eval", _check(each, wanted.vhost))) for each in _lines(rows)
    ]


_LINE_MAX = 6_000
"""Characters of the queues of one check: a line of cmd.exe has 8,191, quotes count twice there."""


def _lines(rows: Sequence[str]) -> Iterator[list[str]]:
    """Yield the rows in lists that fit into a line."""
    line: list[str] = []
    for row in rows:
        if line and sum(len(each) + each.count('"') + 1 for each in (*line, row)) > _LINE_MAX:
            yield line
            line = []
        line.append(row)
    if line:
        yield line


def _check(rows: Sequence[str], vhost: str) -> str:
    """Return an Erlang expression that fails with the name of the first foreign queue."""
    return (
        "lists:foreach(fun({Name,Type})->"
        f"case rabbit_amqqueue:lookup(rabbit_misc:r({_binary(vhost)},queue,Name)) of "
        "{ok,Queue}->case {amqqueue:get_type(Queue),"
        f"rabbit_misc:table_lookup(amqqueue:get_arguments(Queue),{_binary(SCHEMA_ARGUMENT)})}} of "
        "{Type,undefined}->exit({queue_without_our_arguments_is_there,Name});"
        "{Type,_}->ok;"
        "{Other,_}->exit({queue_of_another_type_is_there,Name,Other}) end;"
        f"_->ok end end,[{','.join(rows)}])."
    )


def _binary(text: str) -> str:
    """Return an Erlang binary; a text with quotes, backslashes or non-ASCII is given as bytes."""
    if re.fullmatch(r"[ -!#-\[\]-~]*", text):
        return f'<<"{text}">>'
    return "<<" + ",".join(str(byte) for byte in text.encode()) + ">>"


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
