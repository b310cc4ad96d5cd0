"""The worked migration of the documentation: one ARM template, and what every writer makes of it.

    python -m policies.worked_migration docs [--check]

writes `docs/examples/migration/*` from its `template.json`, and the section of `docs/policies.md`
between two marks; or says whether they are as they would be written.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bridge.topology.capabilities import Capabilities
from bridge.topology.plain import compile_plain
from policies import report, report_table
from policies.grade import Flavour
from policies.readers import Reading, read
from policies.writers import WRITERS, Wanted

BEGIN = "<!-- worked migration: made by `python -m policies.worked_migration`; do not edit -->"
END = "<!-- end of the worked migration -->"

FOLDER = Path("examples/migration")
PAGE = Path("policies.md")
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


def files(docs: Path) -> dict[Path, str]:
    """Return every generated file with its text; line ends of cmd.exe included."""
    template = (docs / FOLDER / "template.json").read_text(encoding="utf-8")
    reading = read(template, "template.json")
    target = Capabilities.of(TARGET)
    wanted = Wanted(topology=compile_plain(reading.namespace, target), vhost="/", target=target)
    written = {to: WRITERS[to](wanted).text for to in _FILES}
    found = {docs / FOLDER / _FILES[to][0]: text for to, text in written.items()}
    page = (docs / PAGE).read_text(encoding="utf-8")
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{docs / PAGE} has no lines {BEGIN!r} and {END!r}.")
    section = "\n".join(_section(template, reading, written))
    return {**found, docs / PAGE: f"{before}{BEGIN}\n\n{section}\n{END}{after}"}


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


def main(arguments: list[str] | None = None) -> int:
    """Write or check; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m policies.worked_migration")
    parser.add_argument("docs", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    code = 0
    for path, text in files(options.docs).items():
        if path.exists() and path.read_bytes() == text.encode():
            continue
        if options.check:
            sys.stderr.write(
                f"{path} is not what the code writes. "
                f"Run 'python -m policies.worked_migration {options.docs}'.\n"
            )
            code = 1
        else:
            path.write_bytes(text.encode())
    return code


if __name__ == "__main__":
    sys.exit(main())
