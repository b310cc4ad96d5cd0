"""The input of `busbridge policies`: its options, reading it, and compiling what was read."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bridge.model import entity as model
from bridge.model.duration import format_duration, parse_duration_ms
from bridge.topology import compiler, definitions
from bridge.topology.capabilities import TTL_MAX_MS, Capabilities
from bridge.topology.plain import compile_plain
from bridge.topology.policy import MEBIBYTE, PRIORITY, Ceiling
from bridge.topology.resources import Finding, Topology
from policies import report
from policies.grade import Flavour
from policies.readers import FORMATS, Reading, decode, read, read_parameters

STANDARD_INPUT = "-"


def add_input(parser: argparse.ArgumentParser) -> None:
    """Add what says where the input is and how to read it."""
    forms = ", ".join(each.title for each in FORMATS)
    parser.add_argument("input", help=f"a file, or - for standard input: {forms}")
    parser.add_argument(
        "--from", dest="form", choices=[each.name for each in FORMATS], help="the input's format"
    )
    parser.add_argument(
        "--parameter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of an ARM template",
    )
    parser.add_argument(
        "--parameters", metavar="FILE", help="the parameter file of an ARM template"
    )
    parser.add_argument("--input-vhost", help="which virtual host of a definitions file to read")


def add_compilation(parser: argparse.ArgumentParser) -> None:
    """Add what says how to compile it."""
    parser.add_argument(
        "--flavour",
        choices=[each.value for each in Flavour],
        default=Flavour.BRIDGE.value,
        help="with the bridge, or what RabbitMQ alone can do (default: bridge)",
    )
    parser.add_argument(
        "--priority", type=int, help=f"that of the policies (default: {PRIORITY}, or the next free)"
    )
    parser.add_argument(
        "--ceiling-ttl", metavar="DURATION", help="operator policy: no message lives longer (P14D)"
    )
    parser.add_argument(
        "--ceiling-size-mb", type=int, metavar="MB", help="operator policy: no queue holds more"
    )
    add_strict(parser)


def add_strict(parser: argparse.ArgumentParser) -> None:
    """Add `--strict`."""
    parser.add_argument("--strict", action="store_true", help="anything lost is an error")


def read_input(arguments: argparse.Namespace) -> Reading:
    """Return what the input defines.

    Raises:
        ReadError: with every fault of it.
    """
    is_standard = arguments.input == STANDARD_INPUT
    content = sys.stdin.buffer.read() if is_standard else Path(arguments.input).read_bytes()
    source = "standard input" if is_standard else arguments.input
    parameters: dict[str, object] = {}
    if arguments.parameters:
        file = arguments.parameters
        parameters |= read_parameters(decode(Path(file).read_bytes(), file), file)
    for given in arguments.parameter:
        name, separator, value = given.partition("=")
        if not separator:
            raise ValueError(f"--parameter {given!r} is not NAME=VALUE.")
        parameters[name] = value
    return read(
        decode(content, source),
        source,
        form=arguments.form,
        parameters=parameters,
        vhost=arguments.input_vhost,
    )


def compiled(
    namespace: model.Namespace,
    arguments: argparse.Namespace,
    target: Capabilities,
    vhost: str,
    *,
    priority: int = PRIORITY,
) -> Topology:
    """Return the topology of a namespace in the flavour that the options name."""
    ceiling = _ceiling(arguments)
    if Flavour(arguments.flavour) is Flavour.PLAIN:
        return compile_plain(namespace, target, priority=priority, ceiling=ceiling)
    topology = compiler.compile(namespace, target, priority=priority, ceiling=ceiling)
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


def check_strict(arguments: argparse.Namespace, reading: Reading, version: str) -> None:
    """Raise when something is lost and `--strict` was given.

    Raises:
        Lost: naming all of it.
    """
    if arguments.strict:
        flavour = Flavour(arguments.flavour)
        report.check_strict(report.make(reading, flavours=[flavour], versions=[version]))


def show(findings: Sequence[Finding]) -> None:
    """Print findings to standard error."""
    for finding in findings:
        where = f"{finding.entity}: " if finding.entity else ""
        print(f"{finding.grade}: {where}{finding.property}: {finding.message}", file=sys.stderr)
