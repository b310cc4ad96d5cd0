"""What can be wrong with a description."""

from __future__ import annotations

from bridge.wire.atom.xml import Element


class DescriptionError(ValueError):
    """An element says what Service Bus does not take.

    Attributes:
        element: the one that is wrong.
        message: what is wrong; goes on after a colon.
        remedy: what it has to be.
    """

    def __init__(self, element: Element, message: str, remedy: str) -> None:
        super().__init__(f"{message} {remedy}")
        self.element = element
        self.message = message
        self.remedy = remedy
