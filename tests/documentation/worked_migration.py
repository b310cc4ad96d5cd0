"""The worked migration of the documentation: a template, and what every writer makes of it."""

from __future__ import annotations

from pathlib import Path

from bridge.topology.capabilities import Capabilities
from bridge.topology.plain import compile_plain
from policies import report, report_table
from policies.grade import Flavour
from policies.readers import Reading, read
from policies.writers import WRITERS, Wanted

FOLDER = Path("examples/migration")
TARGET = "4.3"

_FILES = {
    "bash": ("orders.sh", "bash", "bash"),
    "powershell": ("orders.ps1", "powershell", "PowerShell"),
    "cmd": ("orders.cmd", "bat", "cmd.exe"),
    "rabbitmqadmin": ("orders.rabbitmqadmin.sh", "bash", "rabbitmqadmin"),
    "definitions": ("orders.definitions.json", "json", "Definitions"),
    "kubernetes": ("orders.kubernetes.yaml", "yaml", "Kubernetes"),
    "terraform": ("orders.tf", "hcl", "Terraform"),
}
_SHOWN_LINES = 24
_SHOWN_CHARACTERS = 160


def made(template: str) -> tuple[str, dict[str, str]]:
    """Return the section that shows the migration of a template, and its files, by their names."""
    reading = read(template, "template.json")
    target = Capabilities.of(TARGET)
    wanted = Wanted(topology=compile_plain(reading.namespace, target), vhost="/", target=target)
    written = {to: WRITERS[to](wanted).text for to in _FILES}
    section = "\n".join(_section(template, reading, written))
    return section, {_FILES[to][0]: text for to, text in written.items()}


def _section(template: str, reading: Reading, written: dict[str, str]) -> list[str]:
    graded = report.make(reading, flavours=[Flavour.PLAIN], versions=[TARGET])
    lines = [
        f"The input, `{FOLDER}/template.json`:",
        "",
        *_block("json", template),
        "",
        "What RabbitMQ alone keeps of it (`busbridge policies report template.json --flavour plain "
        f"--target {TARGET}`):",
        "",
        *_block("text", report_table.table(graded)),
        "",
    ]
    for to, (name, language, title) in _FILES.items():
        command = f"busbridge policies generate template.json --flavour plain --to {to}"
        lines += [
            f"### {title}",
            "",
            f"`{command}` ([all of it]({FOLDER}/{name})):",
            "",
            *_block(language, _shortened(written[to])),
            "",
        ]
    return lines


def _block(language: str, text: str) -> list[str]:
    return [f"```{language}", *text.splitlines(), "```"]


def _shortened(text: str) -> str:
    lines = text.splitlines()
    shown = [
        line if len(line) <= _SHOWN_CHARACTERS else line[:_SHOWN_CHARACTERS] + " ..."
        for line in lines[:_SHOWN_LINES]
    ]
    return "\n".join([*shown, "..."] if len(lines) > _SHOWN_LINES else shown)
