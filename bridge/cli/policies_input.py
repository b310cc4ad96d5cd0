"""Input of `busbridge policies`: options, reading, and compilation."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bridge.cli.live_namespace import is_connection_string, live_namespace
from bridge.model import entity as model
from bridge.model.duration import format_duration, parse_duration_ms
from bridge.topology import compiler, definitions
from bridge.topology.capabilities import TTL_MAX_MS, Capabilities
from bridge.topology.findings import LOST
from bridge.topology.plain import compile_plain
from bridge.topology.policy import MEBIBYTE, PRIORITY, Ceiling
from bridge.topology.resources import Finding, Topology
from bridge.topology.sharing import Sharing, others
from policies import losses
from policies.grade import Flavour
from policies.plan_text import counted
from policies.readers import FORMATS, Reading, decode, read_all, read_parameters

STANDARD_INPUT = "-"


def add_input(parser: argparse.ArgumentParser) -> None:
    """Add the options for the input's place and format."""
    forms = "; ".join(each.title for each in FORMATS)
    group = parser.add_argument_group("input")
    group.add_argument(
        "input",
        nargs="+",
        metavar="INPUT",
        help=f"a file, or several of one namespace, or - for standard input: {forms}; "
        "a connection string, given or in a file: the live namespace, Azure's or a bridge's",
    )
    group.add_argument(
        "--from",
        dest="form",
        choices=[each.name for each in FORMATS],
        help="the input's format (default: found from its content)",
    )
    group.add_argument("--namespace", metavar="NAME", help="which namespace, of several")
    group.add_argument(
        "--parameter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of an ARM template; may be given repeatedly",
    )
    group.add_argument("--parameters", metavar="FILE", help="the parameter file of an ARM template")
    group.add_argument(
        "--input-vhost", metavar="NAME", help="which virtual host of a definitions file"
    )


def add_compilation(parser: argparse.ArgumentParser) -> None:
    """Add the options for the compilation."""
    group = parser.add_argument_group("what is made of it")
    group.add_argument(
        "--flavour",
        choices=[each.value for each in Flavour],
        default=Flavour.BRIDGE.value,
        help="with the bridge, or what RabbitMQ alone can do (default: bridge)",
    )
    group.add_argument(
        "--names",
        choices=("given", "lower"),
        default="given",
        help="plain: RabbitMQ's names as given (default), or in lower case",
    )
    group.add_argument(
        "--priority",
        type=int,
        metavar="NUMBER",
        help=f"that of the policies (default: {PRIORITY}, or the next free)",
    )
    group.add_argument(
        "--own-vhost",
        action="store_true",
        help="the virtual host has no quorum queues but the bridge's: one policy gives the "
        "commonest settings to all names, and a new queue needs none written",
    )
    group.add_argument(
        "--ceiling-ttl", metavar="DURATION", help="operator policy: no message lives longer (P14D)"
    )
    group.add_argument(
        "--ceiling-size-mb", type=int, metavar="MB", help="operator policy: no queue holds more"
    )


def add_losses(parser: argparse.ArgumentParser) -> None:
    """Add the options for accepted losses."""
    group = parser.add_argument_group("what may be lost")
    group.add_argument("--strict", action="store_true", help="anything lost is an error (exit 3)")
    group.add_argument(
        "--accept-losses",
        action="append",
        default=[],
        metavar="NAME,...",
        help="these may be lost: orders:RequiresSession, with * for anything (*:RequiresSession)",
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the option for the output file."""
    parser.add_argument(
        "--output", "-o", metavar="FILE", help="write it there (default: standard output)"
    )


def accepted(arguments: argparse.Namespace) -> list[str]:
    """Return the names of the accepted losses."""
    return [name for given in arguments.accept_losses for name in given.split(",") if name.strip()]


def write_output(arguments: argparse.Namespace, text: str) -> None:
    """Write a text to the chosen output unchanged: no line ends are converted."""
    if arguments.output:
        Path(arguments.output).write_bytes(text.encode())
    else:
        sys.stdout.buffer.write(text.encode())
        sys.stdout.flush()


def texts(arguments: argparse.Namespace) -> list[tuple[str, str]]:
    """Return name and text of each input; for a connection string, of its namespace.

    Raises:
        ReadError: an input is no text.
        ValueError: a namespace cannot be read.
    """
    if arguments.input.count(STANDARD_INPUT) > 1:
        raise ValueError("- is given twice: there is one standard input.")
    found = []
    for path in arguments.input:
        source, text = _text(path)
        if is_connection_string(text):
            live = live_namespace(text)
            source, text = live.url, live.read()
        found.append((source, text))
    return found


def _text(given: str) -> tuple[str, str]:
    """Return name and text of an input: a file's, standard input's, or the argument itself."""
    if is_connection_string(given):
        return "the connection string", given
    is_standard = given == STANDARD_INPUT
    content = sys.stdin.buffer.read() if is_standard else Path(given).read_bytes()
    source = "standard input" if is_standard else given
    return source, decode(content, source)


def read_input(arguments: argparse.Namespace, given: Sequence[tuple[str, str]] = ()) -> Reading:
    """Return the definitions in the inputs.

    Args:
        given: names and texts of the inputs, if already read.

    Raises:
        ReadError: an input is invalid; the error has all its faults.
    """
    given = given or texts(arguments)
    values: dict[str, object] = {}
    if arguments.parameters:
        file = arguments.parameters
        values |= read_parameters(decode(Path(file).read_bytes(), file), file)
    for each in arguments.parameter:
        name, separator, value = each.partition("=")
        if not separator:
            raise ValueError(f"--parameter {each!r} is not NAME=VALUE.")
        values[name] = value
    return read_all(
        given,
        form=arguments.form,
        parameters=values,
        vhost=arguments.input_vhost,
        namespace=arguments.namespace,
    )


def has_lower_names(arguments: argparse.Namespace) -> bool:
    """Whether RabbitMQ's names are in lower case, whatever the entities' names are."""
    return Flavour(arguments.flavour) is Flavour.BRIDGE or bool(arguments.names == "lower")


def compiled(
    namespace: model.Namespace,
    arguments: argparse.Namespace,
    target: Capabilities,
    vhost: str,
    *,
    priority: int = PRIORITY,
    there: Topology | None = None,
) -> Topology:
    """Return the topology of a namespace in the chosen flavour.

    Args:
        there: the virtual host's present topology, if it exists.
    """
    ceiling = _ceiling(arguments)
    folds_names = arguments.names == "lower"
    if arguments.own_vhost and Flavour(arguments.flavour) is Flavour.PLAIN:
        raise ValueError("--own-vhost is for --flavour bridge.")
    if Flavour(arguments.flavour) is Flavour.PLAIN:
        return compile_plain(
            namespace,
            target,
            priority=priority,
            ceiling=ceiling,
            folds_names=folds_names,
            there=there,
            keeps_others=there is not None and not arguments.prune,
            vhost=vhost,
        )
    if folds_names:
        raise ValueError("--names is for --flavour plain: with the bridge they are in lower case.")
    live = there or Topology()
    sharing = Sharing(
        live=live.policies, is_own=arguments.own_vhost, others=others(live) if there else None
    )
    topology = compiler.compile(
        namespace, target, priority=priority, ceiling=ceiling, sharing=sharing
    )
    return replace(topology, parameters=definitions.parameters(namespace, vhost))


def _ceiling(arguments: argparse.Namespace) -> Ceiling:
    size_mb = arguments.ceiling_size_mb
    ttl = arguments.ceiling_ttl
    time_to_live_ms = None if ttl is None else parse_duration_ms(ttl)
    if time_to_live_ms is not None and time_to_live_ms > TTL_MAX_MS:
        raise ValueError(
            f"--ceiling-ttl {ttl}: RabbitMQ's longest is {format_duration(TTL_MAX_MS)}."
        )
    return Ceiling(
        time_to_live_ms=time_to_live_ms,
        size_bytes=None if size_mb is None else size_mb * MEBIBYTE,
    )


def lost(arguments: argparse.Namespace, reading: Reading, version: str) -> tuple[Finding, ...]:
    """Return the losses of the input, accepted or not.

    Raises:
        UnacceptedLosses: `--strict` was given, and a loss is not accepted.
    """
    found = losses.of(reading, Flavour(arguments.flavour), version)
    if arguments.strict:
        losses.check(found, accepted(arguments))
    return found


def show_all(
    reading: Reading, lost: Sequence[Finding], more: Sequence[Finding], names: Mapping[str, str]
) -> None:
    """Print to standard error the differences, then the losses, each once, and their number."""
    others = [each for each in (*reading.findings, *more) if each.grade != LOST]
    show([*others, *lost], {path: base for base, path in names.items()})
    if lost:
        print(f"{counted(len(lost), 'loss', 'losses')}.", file=sys.stderr)


def show(findings: Sequence[Finding], names: Mapping[str, str] | None = None) -> None:
    """Print findings to standard error.

    Args:
        names: RabbitMQ's name of an entity by the entity's path, where they differ.
    """
    for finding in dict.fromkeys(findings):
        base = (names or {}).get(finding.entity, "")
        also = f" ({base} in RabbitMQ)" if base else ""
        name = losses.name_of(finding)
        print(f"{finding.grade}: {name}{also}: {finding.message}", file=sys.stderr)
