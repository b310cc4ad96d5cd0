"""Terraform's language, as `terraform fmt` leaves it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

Body = list["Attribute | Block"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """`name = value`; a map takes several lines."""

    name: str
    value: str | Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """`type "label" ... { body }`; the type may be a map's `name =`."""

    type: str
    labels: tuple[str, ...] = ()
    body: Body


def quote(text: str) -> str:
    """Return text as a quoted string; `${` and `%{`, which begin templates, are escaped."""
    escaped = json.dumps(text).replace("${", "$${").replace("%{", "%%{")
    return escaped.replace("\\b", "\\u0008").replace("\\f", "\\u000c")


def render(body: Body, indent: int = 0) -> list[str]:
    """Return the lines of a body; neighbouring attributes of one line each are aligned."""
    lines: list[str] = []
    widths = _widths(body)
    space = " " * indent
    for item, width in zip(body, widths, strict=True):
        if isinstance(item, Block):
            head = " ".join([item.type, *(json.dumps(label) for label in item.labels)])
            lines += [f"{space}{head} {{", *render(item.body, indent + 2), f"{space}}}"]
        elif isinstance(item.value, str):
            lines.append(f"{space}{item.name:{width}} = {item.value}")
        else:
            members: Body = [Attribute(name=k, value=v) for k, v in item.value.items()]
            lines += [f"{space}{item.name} = {{", *render(members, indent + 2), f"{space}}}"]
    return lines


def _widths(body: Body) -> list[int]:
    """Return a width for each attribute's name: the longest name in its run of neighbours."""
    widths = [0] * len(body)
    start = 0
    for position in range(len(body) + 1):
        item = body[position] if position < len(body) else None
        if isinstance(item, Attribute) and isinstance(item.value, str):
            continue
        run = [each.name for each in body[start:position] if isinstance(each, Attribute)]
        widths[start:position] = [max(map(len, run), default=0)] * (position - start)
        start = position + 1
    return widths
