"""`busbridge policies`: RabbitMQ policies and definitions from Service Bus definitions.

The exit codes are in `_EXIT_CODES`, which every help shows.
"""

from __future__ import annotations

import argparse
import sys

from bridge.broker.errors import BrokerError
from bridge.cli import policies_live
from bridge.cli.policies_input import (
    accepted,
    add_compilation,
    add_input,
    add_losses,
    add_output,
    compiled,
    has_lower_names,
    lost,
    read_input,
    show_all,
    write_output,
)
from bridge.cli.process import advice
from bridge.commands.terminal import is_coloured
from bridge.model.errors import ServiceBusError
from bridge.topology.capabilities import Capabilities
from bridge.topology.policy import PRIORITY
from policies import losses, report, report_table
from policies.errors import ReadError
from policies.grade import Flavour
from policies.plan import display_names
from policies.writers import WRITERS, KubernetesPlace, Wanted

FAILED, INVALID, LOST = 1, 2, 3

_EXIT_CODES = """exit codes:
  0  done; check: the broker is as defined
  1  the broker cannot be reached, or refused a step
  2  the options or the input make no sense
  3  something is lost: with --strict, or apply without --accept-losses
  4  check: the broker is not as defined
  5  nothing was done: there are conflicts, policies that cannot be mended, destructive
     steps without --allow, a plan that is out of date, or a question was answered with no"""

_EXAMPLES = {
    "": (
        "busbridge policies report template.json",
        "busbridge policies plan template.json --management-url http://user:password@host:15672",
        "busbridge policies apply --help",
    ),
    "generate": (
        "busbridge policies generate template.json --to bash --target 3.10 -o orders.sh",
        "az bicep build --file main.bicep --stdout | busbridge policies generate - --to terraform",
        "busbridge policies generate queues.json topics.json --from az --to definitions",
    ),
    "report": (
        "busbridge policies report template.json",
        "busbridge policies report Config.json --flavour plain --target 4.3 --all",
        "busbridge policies report state.json --json -o report.json",
    ),
    "plan": (
        "busbridge policies plan template.json --rabbitmq-url amqp://user:password@host/vhost",
        "busbridge policies plan template.json --out orders.plan",
        "busbridge policies plan template.json --json | jq .counts",
    ),
    "apply": (
        "busbridge policies apply template.json --accept-losses orders:RequiresSession",
        "busbridge policies apply orders.plan --yes",
        "busbridge policies apply template.json --prune --allow",
    ),
    "check": (
        "busbridge policies check template.json --rabbitmqctl",
        "busbridge policies check template.json --vhost orders",
    ),
    "adopt": (
        "busbridge policies adopt --as config -o Config.json",
        "busbridge policies adopt --rabbitmqctl > definitions.json",
    ),
    "remove": ("busbridge policies remove --allow", "busbridge policies remove --vhost orders"),
}


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its own commands."""
    policies = _parser(
        commands, "policies", "", "RabbitMQ policies and definitions from Service Bus definitions"
    )
    policies.set_defaults(run=run)
    actions = policies.add_subparsers(dest="action", required=True, metavar="ACTION")

    generate = _parser(actions, "generate", "generate", "print what a RabbitMQ takes")
    add_input(generate)
    generate.add_argument("--to", required=True, choices=WRITERS, help="the form to write")
    generate.add_argument(
        "--target", metavar="VERSION", default="4.3", help="RabbitMQ's version (default: 4.3)"
    )
    generate.add_argument("--vhost", default="/", help="the virtual host (default: /)")
    add_output(generate)
    generate.add_argument(
        "--kubernetes-namespace", default="", metavar="NAME", help="the objects' namespace"
    )
    generate.add_argument(
        "--kubernetes-cluster",
        default="rabbitmq",
        metavar="[NAMESPACE/]NAME",
        help="the RabbitmqCluster that the objects are for (default: rabbitmq)",
    )
    add_compilation(generate)
    add_losses(generate)

    reporting = _parser(actions, "report", "report", "what RabbitMQ keeps of each property")
    add_input(reporting)
    reporting.add_argument("--json", action="store_true", help="for scripts")
    reporting.add_argument("--all", action="store_true", help="what is exact too")
    add_output(reporting)
    reporting.add_argument(
        "--flavour", choices=[each.value for each in Flavour], help="one only (default: both)"
    )
    reporting.add_argument(
        "--target", action="append", metavar="VERSION", help="may be given repeatedly"
    )
    add_losses(reporting)

    for name, meaning in policies_live.ACTIONS.items():
        action = _parser(actions, name, name, meaning)
        if name in policies_live.WITH_INPUT:
            add_input(action)
            add_compilation(action)
            add_losses(action)
        policies_live.add_arguments(action, name)


def _parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    examples: str,
    meaning: str,
) -> argparse.ArgumentParser:
    shown = "\n".join(f"  {line}" for line in _EXAMPLES[examples])
    return commands.add_parser(
        name,
        help=meaning,
        description=meaning[0].upper() + meaning[1:] + ".",
        epilog=f"examples:\n{shown}\n\n{_EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code; errors and findings go to standard error."""
    try:
        match arguments.action:
            case "generate":
                return _generate(arguments)
            case "report":
                return _report(arguments)
            case _:
                return policies_live.run(arguments)
    except losses.UnacceptedLosses as error:
        return _said(str(error), LOST)
    except BrokerError as error:
        return _said(f"busbridge: {error}{advice(error, tag='administrator')}", FAILED)
    except OSError as error:
        return _said(f"busbridge: {error.filename or 'the output'}: {error.strerror}", INVALID)
    except (ReadError, ServiceBusError, ValueError) as error:
        return _said(f"busbridge: {error}", INVALID)


def _generate(arguments: argparse.Namespace) -> int:
    target = Capabilities.of(arguments.target)
    reading = read_input(arguments)
    missing = lost(arguments, reading, arguments.target)
    topology = compiled(
        reading.namespace,
        arguments,
        target,
        arguments.vhost,
        priority=PRIORITY if arguments.priority is None else arguments.priority,
    )
    cluster_namespace, _, cluster = arguments.kubernetes_cluster.rpartition("/")
    place = KubernetesPlace(
        namespace=arguments.kubernetes_namespace,
        cluster=cluster,
        cluster_namespace=cluster_namespace,
    )
    wanted = Wanted(topology=topology, vhost=arguments.vhost, target=target, kubernetes=place)
    written = WRITERS[arguments.to](wanted)
    show_all(
        reading,
        missing,
        [*topology.findings, *written.findings],
        display_names(reading.namespace) if has_lower_names(arguments) else {},
    )
    write_output(arguments, written.text)
    return 0


def _report(arguments: argparse.Namespace) -> int:
    flavours = [Flavour(arguments.flavour)] if arguments.flavour else list(Flavour)
    made = report.make(
        read_input(arguments), flavours=flavours, versions=arguments.target or report.TARGETS
    )
    colours = not arguments.output and is_coloured(sys.stdout)
    text = (
        report.to_json(made)
        if arguments.json
        else report_table.table(made, show_exact=arguments.all, is_coloured=colours)
    )
    write_output(arguments, text)
    if arguments.strict:
        found = [each for target in made.targets for each in made.losses(target)]
        losses.check(dict.fromkeys(found), accepted(arguments))
    return 0


def _said(text: str, code: int) -> int:
    print(text, file=sys.stderr)
    return code
