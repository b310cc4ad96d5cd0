"""Values of a template: expressions evaluated with its parameters, variables and loops.

Parameters and variables are evaluated on first use, so their order does not matter. A faulty
expression becomes a stand-in with the fault as its reason: many properties do not matter here, and
a reader that needs the value reports the fault with its place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from policies.errors import Position
from policies.readers.arm import expression, functions
from policies.readers.arm.expression import BadExpression, Call, Expression, Literal, Member
from policies.readers.arm.unresolved import is_unresolved, reason, unresolved
from policies.readers.jsontext import Node, step

LOOP_MAX = 10_000
"""Turns of a loop that are followed; Azure takes 800 resources in a template."""

_AZURE_ONLY = {
    "deployer": "who deploys",
    "deployment": "the deployment",
    "environment": "the cloud",
    "guid": "a GUID of Azure's own making",
    "listkeys": "the keys of a resource",
    "managementgroup": "the management group",
    "newguid": "a new GUID",
    "pickzones": "the availability zones",
    "providers": "a resource provider",
    "resourcegroup": "the resource group",
    "subscription": "the Azure subscription",
    "tenant": "the tenant",
    "uniquestring": "a hash of Azure's own making",
    "utcnow": "the time of the deployment",
}
"""Functions whose value exists in Azure alone."""


@dataclass(slots=True)
class Scope:
    """The parameters, variables and loops that a template's expressions can use.

    Attributes:
        template: the template's node.
        given: values of parameters, from a parameter file or the deployment around this template.
        loops: the turn of each running loop, by its name; "" is the innermost loop of a resource.
        locals: the variables of running lambdas.
        state_of: returns the value of `reference()` for a name or id; `None` if it is not known.
    """

    template: Node
    given: Mapping[str, object] = field(default_factory=dict)
    loops: dict[str, int] = field(default_factory=dict)
    locals: dict[str, Any] = field(default_factory=dict)
    state_of: Callable[[str], object] = lambda _: None
    _known: dict[tuple[str, str], Any] = field(default_factory=dict)

    def in_loop(self, name: str, turn: int) -> Scope:
        """Return the scope of one turn of a loop."""
        return replace(self, loops=self.loops | {name.lower(): turn, "": turn})

    def evaluate(self, node: Node) -> Node:
        """Return a value of the template with its expressions evaluated; places stay."""
        value = node.value
        if isinstance(value, str):
            return wrap(self.text(value), node.place)
        if isinstance(value, list):
            return Node([self.evaluate(item) for item in value], node.place)
        if isinstance(value, dict):
            members = {
                str(self.text(key)): self.evaluate(member)
                for key, member in value.items()
                if not (key.lower() == "copy" and isinstance(member.value, list))
            }
            if isinstance(node["copy"].value, list):
                for loop in node["copy"].items:
                    members[self.evaluate(loop["name"]).text] = self._loop(loop)
            return Node(members, node.place)
        return node

    def text(self, text: str) -> Any:
        """Return the value of a text that is an expression, else the text itself."""
        if not expression.is_expression(text):
            return expression.unescape(text)
        try:
            return self._value(expression.parse(text))
        except (BadExpression, functions.FunctionError) as error:
            return unresolved(f"{text}: {error}")
        except RecursionError:
            return unresolved(f"{text}: it refers to itself")

    def turns(self, loop: Node) -> int | str:
        """Return a loop's number of turns, or a stand-in when it is not known."""
        count = self.evaluate(loop["count"]).plain()
        if is_unresolved(count):
            return str(count)
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= LOOP_MAX:
            return unresolved(f"the count of a loop is {count!r}")
        return count

    def _loop(self, loop: Node) -> Node:
        """Return the array that a `copy` in properties or variables makes."""
        turns = self.turns(loop)
        if isinstance(turns, str):
            return Node(turns, loop.place)
        name = self.evaluate(loop["name"]).text.lower()
        # copyIndex() without a name stays the turn of the resource's loop, if there is one.
        scopes = (
            replace(self, loops={"": turn} | self.loops | {name: turn}) for turn in range(turns)
        )
        return Node([each.evaluate(loop["input"]) for each in scopes], loop.place)

    def _value(self, tree: Expression) -> Any:
        match tree:
            case Literal(value=value):
                return value
            case Member():
                return self._member(tree)
            case Call(name="if", arguments=(condition, yes, no)):
                decided = self._value(condition)
                if is_unresolved(decided):
                    return unresolved(reason(decided))
                return self._value(yes if functions.call("bool", [decided]) else no)
            case Call(name="lambda"):
                raise BadExpression("a lambda stands alone")
            case Call(name=name, arguments=arguments):
                return self._call(name, arguments)

    def _member(self, tree: Member) -> Any:
        whole, key = self._value(tree.of), self._value(tree.key)
        for each in (whole, key):
            if isinstance(each, str) and is_unresolved(each):
                return unresolved(reason(each))
        if isinstance(whole, dict):
            for known, value in whole.items():
                if known.lower() == str(key).lower():
                    return value
        elif isinstance(whole, list) and isinstance(key, int) and 0 <= key < len(whole):
            return whole[key]
        if tree.may_be_absent:
            return None
        raise BadExpression(f"there is no member {key!r}")

    def _call(self, name: str, arguments: tuple[Expression, ...]) -> Any:
        if name in _LAMBDA_FUNCTIONS:
            return self._with_lambda(name, arguments)
        values = [self._value(each) for each in arguments]
        match name, values:
            case "parameters", [str(which)]:
                return self.parameter(which)
            case "variables", [str(which)]:
                return self._once("variable", which, self._find_variable)
            case "lambdavariables", [str(which)] if which.lower() in self.locals:
                return self.locals[which.lower()]
            case "copyindex", _:
                return self._copy_index(values)
            case "reference", [str(which), *_]:
                return self._reference(which)
        if name in _AZURE_ONLY or name.startswith("list") or "." in name:
            return unresolved(f"{name}() is {_AZURE_ONLY.get(name, 'known to Azure alone')}")
        return functions.call(name, values)

    def parameter(self, name: str) -> Any:
        """Return a parameter's value, or a stand-in with the reason why it has none."""
        return self._once("parameter", name, self._find_parameter)

    def _once(self, what: str, name: str, find: Callable[[str], Any]) -> Any:
        key = (what, name.lower())
        if key not in self._known:
            self._known[key] = unresolved(f"the {what} {name!r} refers to itself")
            self._known[key] = find(name)
        return self._known[key]

    def _find_parameter(self, name: str) -> Any:
        values = {given.lower(): value for given, value in self.given.items()}
        if name not in self.template["parameters"]:
            return unresolved(f"the template has no parameter {name!r}")
        declared = self.template["parameters"][name]
        if values.get(name.lower()) is not None:
            return _typed(values[name.lower()], declared["type"].text)
        if "defaultValue" in declared:
            return self.evaluate(declared["defaultValue"]).plain()
        if declared["nullable"].value is True:
            return None
        return unresolved(f"the parameter {name!r} has no value")

    def _find_variable(self, name: str) -> Any:
        variables = self.template["variables"]
        if name in variables and name.lower() != "copy":
            return self.evaluate(variables[name]).plain()
        for loop in variables["copy"].items:
            if loop["name"].text.lower() == name.lower():
                return self._loop(loop).plain()
        return unresolved(f"the template has no variable {name!r}")

    def _copy_index(self, values: list[Any]) -> Any:
        name = values[0].lower() if values and isinstance(values[0], str) else ""
        offsets = [value for value in values if isinstance(value, int)]
        if name not in self.loops:
            raise BadExpression("copyIndex() outside of its loop")
        return self.loops[name] + sum(offsets)

    def _reference(self, which: str) -> Any:
        state = self.state_of(which)
        return (
            unresolved("reference() is the state of a resource in Azure")
            if state is None
            else state
        )

    def _with_lambda(self, name: str, arguments: tuple[Expression, ...]) -> Any:
        values = self._value(arguments[0])
        if is_unresolved(values):
            return unresolved(reason(values))
        run = self._lambda(arguments[-1], name)
        if not isinstance(values, list):
            raise BadExpression(f"{name}() takes an array")
        match name:
            case "map":
                return [run(each, index) for index, each in enumerate(values)]
            case "filter":
                return [each for index, each in enumerate(values) if run(each, index)]
            case "reduce":
                result = self._value(arguments[1])
                for index, each in enumerate(values):
                    result = run(result, each, index)
                return result
            case "toobject":
                key = self._lambda(arguments[1], name)
                as_is = len(arguments) == 2
                return {str(key(each)): each if as_is else run(each) for each in values}
        return unresolved(f"the function {name}() is not known here")

    def _lambda(self, maker: Expression, name: str) -> Callable[..., Any]:
        if not isinstance(maker, Call) or maker.name != "lambda" or not maker.arguments:
            raise BadExpression(f"{name}() takes a lambda")
        *names, body = maker.arguments
        labels = [str(self._value(each)).lower() for each in names]

        def run(*inputs: Any) -> Any:
            bound = dict(zip(labels, inputs, strict=False))
            return replace(self, locals=self.locals | bound)._value(body)

        return run


def _typed(value: object, kind: str) -> object:
    """Return a parameter's value; a text from a command line is read as its declared type."""
    if isinstance(value, str) and kind.lower() in ("int", "bool", "array", "object"):
        with suppress(ValueError):
            return json.loads(value)
    return value


_LAMBDA_FUNCTIONS = {"map", "filter", "reduce", "sort", "groupby", "mapvalues", "toobject"}


def wrap(value: Any, place: Position) -> Node:
    """Return the node of a plain value; all nodes in it have the line of `place`."""
    if isinstance(value, dict):
        return Node(
            {
                str(key): wrap(each, Position(line=place.line, path=place.path + step(str(key))))
                for key, each in value.items()
            },
            place,
        )
    if isinstance(value, list):
        items = [
            wrap(each, Position(line=place.line, path=f"{place.path}[{index}]"))
            for index, each in enumerate(value)
        ]
        return Node(items, place)
    return Node(value, place)
