"""An operation of the namespace, as a lane has it carried out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter, index
from typing import Any, Generic, TypeVar

from bridge.client.core.answers import Told
from bridge.client.core.directory import guarded
from bridge.client.core.wire import Answer

Result = TypeVar("Result")

ENDED = "The client was closed before the call had ended."


@dataclass(slots=True)
class Call(Generic[Result]):
    """What is asked, and how it is waited for.

    Attributes:
        name: of `Namespace`, or of one of its parts, behind a dot.
        timeout_s: how long its caller waits; `None`: as long as the client says.
        is_receiving: it needs the connection that receives.
        is_tried_again: what failed for the moment is done again.
        undone_by: makes what undoes a result that its caller gave up.
        read: makes of the result what its caller is given; what it raises may be tried again.

    Raises:
        ValueError: the timeout can be none.
    """

    name: str
    arguments: tuple[Any, ...]
    timeout_s: float | None = None
    is_receiving: bool = False
    is_tried_again: bool = True
    undone_by: Callable[[Any], Call[Any]] | None = None
    read: Callable[[Any], Result] | None = None

    def __post_init__(self) -> None:
        if self.timeout_s is not None and self.timeout_s <= 0:
            raise ValueError("The timeout must be greater than 0.")

    def begin(self, namespace: Any, answer: Answer, *more: Any) -> None:
        """Have it carried out; what it raises is its waiter's."""
        guarded(answer, attrgetter(self.name)(namespace), *self.arguments, answer, *more)

    def undo(self, namespace: Any, answer: Any) -> None:
        """Its caller has given up: nothing is left of a result that was there already."""
        if self.undone_by is None or not answer.done() or answer.cancelled():
            return
        if answer.exception() is None:
            self.undone_by(answer.result()).begin(namespace, Told())


def number_of(given: Any) -> int:
    """Return a number that can be asked for.

    Raises:
        TypeError: it is no whole number.
        ValueError: it has more than 64 bits.
    """
    number = index(given)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"A number has 64 bits at most, and {number} more.")
    return number


def numbers_of(sequence_numbers: Any) -> list[int]:
    """Return one sequence number, or several, as a list."""
    given = [sequence_numbers] if isinstance(sequence_numbers, int) else sequence_numbers
    return [number_of(each) for each in given]
