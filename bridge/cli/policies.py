"""`busbridge policies`: RabbitMQ policies and definitions from Service Bus definitions.

Exit codes:
    0  done; for `check`: the broker is as defined
    1  the broker cannot be reached, or refused a step
    2  the options or the input make no sense
    3  something is lost, and `--strict` was given
    4  `check`: the broker is not as defined
    5  nothing was done: there are conflicts, or destructive steps without `--allow`
"""

from __future__ import annotations

import argparse
import sys

from bridge.broker.errors import BrokerError
from bridge.cli import policies_live
from bridge.cli.policies_input import (
    add_compilation,
    add_input,
    add_strict,
    check_strict,
    compiled,
    read_input,
    show,
)
from bridge.model.errors import ServiceBusError
from bridge.topology.capabilities import Capabilities
from bridge.topology.policy import PRIORITY
from policies import report, report_table
from policies.errors import ReadError
from policies.grade import Flavour
from policies.writers import WRITERS, Wanted

FAILED, INVALID, LOST = 1, 2, 3


def add_arguments(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its own commands."""
    policies = commands.add_parser(
        "policies", help="RabbitMQ policies and definitions from Service Bus definitions"
    )
    policies.set_defaults(run=run)
    actions = policies.add_subparsers(dest="action", required=True, metavar="ACTION")

    generate = actions.add_parser("generate", help="print what a RabbitMQ takes")
    add_input(generate)
    generate.add_argument("--to", required=True, choices=WRITERS, help="the form to write")
    generate.add_argument("--target", default="4.3", help="RabbitMQ's version (default: 4.3)")
    generate.add_argument("--vhost", default="/", help="the virtual host (default: /)")
    add_compilation(generate)

    reporting = actions.add_parser("report", help="what RabbitMQ keeps of each property")
    add_input(reporting)
    reporting.add_argument("--json", action="store_true", help="for scripts")
    reporting.add_argument("--all", action="store_true", help="what is exact too")
    reporting.add_argument(
        "--flavour", choices=[each.value for each in Flavour], help="one only (default: both)"
    )
    reporting.add_argument("--target", action="append", help="a version; may be given repeatedly")
    add_strict(reporting)

    for name, meaning in policies_live.ACTIONS.items():
        action = actions.add_parser(name, help=meaning)
        if name in policies_live.WITH_INPUT:
            add_input(action)
            add_compilation(action)
        policies_live.add_arguments(action, name)


def run(arguments: argparse.Namespace) -> int:
    """Carry the command out and return its exit code; errors and findings go to standard error."""
    try:
        match arguments.action:
            case "generate":
                return _generate(arguments)
            case "report":
                return _report(arguments)
            case _:
                return policies_live.run(arguments)
    except report.Lost as lost:
        return _said(str(lost), LOST)
    except BrokerError as error:
        return _said(f"busbridge: {error}", FAILED)
    except OSError as error:
        return _said(f"busbridge: {error.filename or 'the output'}: {error.strerror}", INVALID)
    except (ReadError, ServiceBusError, ValueError) as error:
        return _said(f"busbridge: {error}", INVALID)


def _generate(arguments: argparse.Namespace) -> int:
    target = Capabilities.of(arguments.target)
    reading = read_input(arguments)
    check_strict(arguments, reading, arguments.target)
    topology = compiled(
        reading.namespace,
        arguments,
        target,
        arguments.vhost,
        priority=PRIORITY if arguments.priority is None else arguments.priority,
    )
    wanted = Wanted(topology=topology, vhost=arguments.vhost, target=target)
    written = WRITERS[arguments.to](wanted)
    show([*reading.findings, *topology.findings, *written.findings])
    sys.stdout.buffer.write(written.text.encode())
    return 0


def _report(arguments: argparse.Namespace) -> int:
    flavours = [Flavour(arguments.flavour)] if arguments.flavour else list(Flavour)
    made = report.make(
        read_input(arguments), flavours=flavours, versions=arguments.target or report.TARGETS
    )
    text = (
        report.to_json(made)
        if arguments.json
        else report_table.table(
            made, show_exact=arguments.all, is_coloured=policies_live.is_coloured(sys.stdout)
        )
    )
    sys.stdout.buffer.write(text.encode())
    if arguments.strict:
        report.check_strict(made)
    return 0


def _said(text: str, code: int) -> int:
    print(text, file=sys.stderr)
    return code
