"""A call: an operation of the namespace, as a lane carries it out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter, index
from typing import Any, Generic, TypeVar

from bridge.client.core.answers import CallbackAnswer
from bridge.client.core.directory import guarded
from bridge.client.core.wire import CallerFuture

Result = TypeVar("Result")

ENDED = "The client was closed before the call had ended."


@dataclass(slots=True)
class Call(Generic[Result]):
    """An operation with its arguments, and how the caller waits.

    Attributes:
        name: a method of `Namespace`, or of one of its parts, behind a dot.
        timeout_s: how long the caller waits; `None`: the client's default.
        is_receiving: the receiving connection is needed.
        is_tried_again: a temporary failure is retried.
        undone_by: makes the call that undoes a given-up result.
        followed_by: makes the call that tells that the caller has the result.
        read: makes the return value from the result; its exceptions may be retried.

    Raises:
        ValueError: the timeout is not positive.
    """

    name: str
    arguments: tuple[Any, ...]
    timeout_s: float | None = None
    is_receiving: bool = False
    is_tried_again: bool = True
    undone_by: Callable[[Any], Call[Any]] | None = None
    followed_by: Callable[[Any], Call[Any]] | None = None
    read: Callable[[Any], Result] | None = None

    def __post_init__(self) -> None:
        if self.timeout_s is not None and self.timeout_s <= 0:
            raise ValueError("The timeout must be greater than 0.")

    def begin(self, namespace: Any, answer: CallerFuture, *more: Any) -> None:
        """Begin the operation; exceptions go to the waiting caller."""
        guarded(answer, attrgetter(self.name)(namespace), *self.arguments, answer, *more)

    def undo(self, namespace: Any, answer: Any) -> None:
        """Undo a result that came after the caller had given up."""
        if self.undone_by is None or not answer.done() or answer.cancelled():
            return
        if answer.exception() is None:
            self.undone_by(answer.result()).begin(namespace, CallbackAnswer())

    def follow(self, namespace: Any, result: Any) -> None:
        """Tell that the caller has the result."""
        if self.followed_by is not None:
            self.followed_by(result).begin(namespace, CallbackAnswer())


def number_of(given: Any) -> int:
    """Return a number as an int of 64 bits.

    Raises:
        TypeError: the value is no whole number.
        ValueError: the number has more than 64 bits.
    """
    number = index(given)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"A number has 64 bits at most, and {number} more.")
    return number


def numbers_of(sequence_numbers: Any) -> list[int]:
    """Return one sequence number, or several, as a list."""
    given = [sequence_numbers] if isinstance(sequence_numbers, int) else sequence_numbers
    return [number_of(each) for each in given]
