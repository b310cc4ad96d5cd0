"""Metrics in Prometheus's text format (version 0.0.4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One value of one metric; `kind` is Prometheus's word (counter, gauge, histogram)."""

    name: str
    help: str
    kind: str
    value: float
    labels: dict[str, str] = field(default_factory=dict)
    suffix: str = ""


def render(samples: Iterable[Sample]) -> str:
    """Return the exposition of samples; those of one metric stand together."""
    families: dict[str, list[Sample]] = {}
    for sample in samples:
        families.setdefault(sample.name, []).append(sample)
    lines = []
    for name, members in families.items():
        lines.append(f"# HELP {name} {members[0].help}")
        lines.append(f"# TYPE {name} {members[0].kind}")
        for member in members:
            value = int(member.value) if member.value == int(member.value) else member.value
            lines.append(f"{name}{member.suffix}{_labels(member.labels)} {value}")
    return "\n".join(lines) + "\n"


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
