"""`busbridge filter test`: which rules of a subscription take a message, and why not."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from bridge.commands.clock import now_ms
from bridge.commands.errors import WrongInput
from bridge.commands.exit_codes import ExitCode
from bridge.commands.message_path import path_in
from bridge.commands.message_source import MessageSource, add_message
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command
from bridge.commands.shown_entities import filter_text
from bridge.commands.target import add_target, target_of

if TYPE_CHECKING:
    from bridge.commands.batching import Numbered
    from bridge.model.entity import Rule
    from bridge.model.filters.changes import Changes
    from bridge.model.filters.rules import RuleSet

PAGE = 100
COLUMNS = ("rule", "takes", "filter", "why")


def register(commands: Commands) -> None:
    """Add the command with its own command."""
    parser = commands.add_parser("filter", help="try the rules of a subscription")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    test = add_command(
        verbs, "test", "say which rules of a subscription take a message, and why not",
        run=run, right="Listen on the subscription; none with --rule",
        examples=(
            "busbridge filter test events audit --subject order --property color=red",
            "busbridge filter test --rule \"color = 'red' AND size > 5\" --property size=5",
        ),
    )  # fmt: skip
    test.add_argument(
        "entity", nargs="*", metavar="SUBSCRIPTION", help="TOPIC/Subscriptions/NAME, or TOPIC NAME"
    )
    test.add_argument(
        "--rule", action="append", default=[], metavar="SQL",
        help="try this filter instead, or beside; may be given again",
    )  # fmt: skip
    test.add_argument(
        "--action", metavar="SQL", help="what the rules of --rule do, such as SET size = size + 1"
    )
    add_message(test, text_option=True)
    add_target(test)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Try each message; DIFFERENCES if the subscription does not take one."""
    from bridge.model.filters.rules import RuleSet

    rules = _given(arguments)
    if not arguments.entity and not rules:
        raise WrongInput("There is no rule to try: name a subscription, or give --rule.")
    source = MessageSource(arguments, now_ms=now_ms)
    if arguments.entity:
        rules += await _rules_of(path_in(arguments.entity), arguments)
    if not rules:
        output.say("The subscription has no rules: it takes no message.")
    rule_set = RuleSet.of({"": tuple(rules)}, new_id=uuid4)
    code, count = ExitCode.DONE, 0
    async for numbered in source.messages():
        count += 1
        if not _try(numbered, rules, rule_set, output, is_one=source.total == 1):
            code = ExitCode.DIFFERENCES
    if not count:
        output.say("There was no message to try.")
    return code


def _given(arguments: argparse.Namespace) -> list[Rule]:
    """Return the rules that options give; WrongInput if one cannot be read."""
    from bridge.model.entity import Rule
    from bridge.model.errors import ServiceBusError
    from bridge.model.filters.rules import check_rule
    from bridge.model.rules import sql

    found = []
    for number, text in enumerate(arguments.rule, 1):
        name = "rule" if len(arguments.rule) == 1 else f"rule{number}"
        rule = Rule(name=name, filter=sql(text), action=arguments.action or "")
        try:
            check_rule(rule)
        except ServiceBusError as error:
            raise WrongInput(f"--rule {text!r}: {error}") from None
        found.append(rule)
    return found


async def _rules_of(path: str, arguments: argparse.Namespace) -> list[Rule]:
    """Return all rules of a subscription."""
    from bridge.remote.namespace import RemoteNamespace

    if "/subscriptions/" not in path.lower():
        raise WrongInput(f"{path!r} is no subscription: write TOPIC/Subscriptions/NAME.")
    target = target_of(arguments)
    found: list[Rule] = []
    async with RemoteNamespace(target.address, target.credential) as namespace:
        management = await namespace.management(path)
        while page := await management.rules(len(found), PAGE):
            found += page
            if len(page) < PAGE:
                break
    return found


def _try(
    numbered: Numbered,
    rules: Sequence[Rule],
    rule_set: RuleSet[str],
    output: Output,
    *,
    is_one: bool,
) -> bool:
    """Write what each rule makes of a message; return whether one takes it."""
    from bridge.model.filters.explanation import explain
    from bridge.remote.message_view import RemoteMessageView

    view = RemoteMessageView(numbered.message)
    rows = []
    for rule in rules:
        found = explain(rule, view, uuid4)
        changes = _changes_text(found.changes)
        row: dict[str, object] = {} if is_one else {"message": numbered.place}
        row |= {
            "rule": rule.name,
            "takes": found.takes,
            "filter": filter_text(rule.filter),
            "why": "; ".join((*found.reasons, *changes)),
        }
        if not output.is_table:
            row["why"] = list(found.reasons)
            row |= {"changes": changes, "failure": found.failure or None}
        rows.append(row)
    columns = COLUMNS if is_one else ("message", *COLUMNS)
    if rows:
        output.table(rows, columns)
    selection = rule_set.select(view)
    copies, failures = len(selection.matches), selection.failures
    where = "" if is_one else f"{numbered.place}: "
    if copies:
        many = "" if copies == 1 else f": {copies} copies, one for each rule with an action"
        output.say(f"{where}The subscription gets it{many}.")
    elif failures:
        output.say(
            f"{where}Rule {failures[0].rule_name!r} fails: the subscription dead-letters the "
            "message if it is set to (dead-lettering on filter evaluation exceptions), and does "
            "not get it otherwise."
        )
    else:
        output.say(f"{where}The subscription does not get it.")
    return bool(copies)


def _changes_text(changes: Changes) -> list[str]:
    """Return the changes of an action as statements."""
    from bridge.model.filters.changes import REMOVED
    from bridge.model.filters.message import Property
    from bridge.model.filters.text import name_text, property_text, value_text

    found = []
    for each in changes:
        name = property_text(Property(True, each.name)) if each.is_system else name_text(each.name)
        is_removed = each.value is REMOVED
        found.append(f"REMOVE {name}" if is_removed else f"SET {name} = {value_text(each.value)}")
    return found
