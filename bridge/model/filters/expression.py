"""The tree of a parsed filter or action. Equal trees mean the same: they are hashed and compared.

Predicates are true, false or unknown; expressions have a value. The grammar keeps them apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.model.filters.message import Property
from bridge.model.filters.values import Value, ValueKind, kind_of


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A literal, or a parameter's value; `None` is NULL."""

    value: Value

    @property
    def kind(self) -> ValueKind | None:
        """The kind of the value, `None` for NULL."""
        return None if self.value is None else kind_of(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, str]:
        # 1, 1.0 and TRUE are equal in Python, and 0.0 and -0.0 are.
        return type(self.value).__name__, repr(self.value)


@dataclass(frozen=True, slots=True)
class Named:
    """`property(name)`: the user property whose name is an expression's value."""

    name: Expression


@dataclass(frozen=True, slots=True)
class NewId:
    """`newid()`: a new Guid at each evaluation."""


@dataclass(frozen=True, slots=True)
class Unary:
    """`-x` or `+x`."""

    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`left + right` and so on."""

    operator: str
    left: Expression
    right: Expression


Expression = Constant | Property | Named | NewId | Unary | Arithmetic


@dataclass(frozen=True, slots=True)
class Comparison:
    """`left = right` and so on; `!=` is `<>`."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class IsNull:
    """`operand IS NULL`."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Exists:
    """`EXISTS(property)`."""

    operand: Property


@dataclass(frozen=True, slots=True)
class In:
    """`operand IN (choices)`."""

    operand: Expression
    choices: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """`operand LIKE pattern ESCAPE escape`."""

    operand: Expression
    pattern: Expression
    escape: Expression | None


@dataclass(frozen=True, slots=True)
class Not:
    """`NOT operand`; also of NOT IN, NOT LIKE, IS NOT NULL."""

    operand: Predicate


@dataclass(frozen=True, slots=True)
class And:
    """All of two or more operands; none of them is an `And`."""

    operands: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one of two or more operands; none of them is an `Or`."""

    operands: tuple[Predicate, ...]


Predicate = Comparison | IsNull | Exists | In | Like | Not | And | Or
Node = Expression | Predicate


@dataclass(frozen=True, slots=True)
class Set:
    """`SET property = value`; `name` is the property's as written."""

    property: Property
    name: str
    value: Expression


@dataclass(frozen=True, slots=True)
class Remove:
    """`REMOVE property`."""

    property: Property
    name: str


Statement = Set | Remove
