"""Options for the filter and the action of a rule."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable

from bridge.commands.errors import WrongInput
from bridge.commands.property_values import value_in
from bridge.model import entity as model
from bridge.model import rules
from bridge.model.rules import CORRELATION_FIELDS

Parameters = tuple[tuple[str, object], ...]

_FIELDS = {name.lower(): name for name in CORRELATION_FIELDS} | {"subject": "Label"}


def add_rule(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    group = parser.add_argument_group(
        "what the rule takes and does",
        'A VALUE that is JSON is read as such: 5, true, {"long": 5}; "5" is the text.',
    )
    which = group.add_mutually_exclusive_group()
    which.add_argument("--filter", metavar="SQL", help="such as \"colour = 'red' AND price > 5\"")
    which.add_argument(
        "--correlation", action="append", metavar="FIELD=VALUE",
        help="equal fields, such as Subject=new; may be given repeatedly: "
        + ", ".join(["Subject", *CORRELATION_FIELDS]),
    )  # fmt: skip
    which.add_argument("--all", action="store_true", help="every message")
    which.add_argument("--none", action="store_true", help="no message")
    group.add_argument(
        "--property", action="append", default=[], metavar="NAME=VALUE",
        help="an equal application property, alone or beside --correlation",
    )  # fmt: skip
    group.add_argument(
        "--parameter", action="append", default=[], metavar="@NAME=VALUE",
        help="a parameter of --filter",
    )  # fmt: skip
    group.add_argument(
        "--action", metavar="SQL", help='such as "SET colour = \'blue\'"; "" for none'
    )
    group.add_argument(
        "--action-parameter", action="append", default=[], metavar="@NAME=VALUE",
        help="a parameter of --action",
    )  # fmt: skip


def filter_in(arguments: argparse.Namespace) -> model.Filter | None:
    """Return the filter that the options give; `None` if they give none.

    Raises:
        WrongInput: they contradict one another, or a value is malformed.
    """
    if arguments.parameter and arguments.filter is None:
        raise WrongInput("--parameter is of --filter, which is not given.")
    if arguments.filter is not None:
        if arguments.property:
            raise WrongInput("--property is of a correlation filter: write it into --filter.")
        return rules.sql(arguments.filter, tuple(_values(arguments.parameter).items()))
    if arguments.correlation or arguments.property:
        if arguments.all or arguments.none:
            raise WrongInput("--property is of a correlation filter: give no --all and no --none.")
        given = dict(map(_pair, arguments.correlation or ()))
        if unknown := [name for name in given if name.lower() not in _FIELDS]:
            known = ", ".join(["Subject", *CORRELATION_FIELDS])
            raise WrongInput(f"--correlation: there is no field {unknown[0]!r}; there are {known}.")
        fields = {_FIELDS[name.lower()]: value for name, value in given.items()}
        return rules.correlation(fields, _values(arguments.property))
    if arguments.none:
        return model.FalseFilter()
    return model.TrueFilter() if arguments.all else None


def action_in(arguments: argparse.Namespace) -> tuple[str | None, Parameters]:
    """Return the action that the options give, with its parameters; `None` if they give none.

    Raises:
        WrongInput: a value is malformed.
    """
    if arguments.action is None and arguments.action_parameter:
        raise WrongInput("--action-parameter is of --action, which is not given.")
    return arguments.action, tuple(_values(arguments.action_parameter).items())


def _pair(text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not mark or not name.strip():
        raise WrongInput(f"{text!r} is no NAME=VALUE.")
    return name.strip(), value


def _values(texts: Iterable[str]) -> dict[str, object]:
    return {name: _value(value) for name, value in map(_pair, texts)}


def _value(text: str) -> object:
    """Return a value: what is JSON, and else a text; an object names the type of its value."""
    given = value_in(text)
    if isinstance(given, bool | int | float | str):
        return given
    try:
        ((kind, value),) = given.items()
        return rules.typed_value(kind, value if isinstance(value, str) else json.dumps(value))
    except (ValueError, TypeError, AttributeError) as error:
        raise WrongInput(f'{text} is no value of a type, such as {{"long": 5}}: {error}.') from None
