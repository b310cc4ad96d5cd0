"""Errors of descriptions."""

from __future__ import annotations

from bridge.wire.atom.xml import Element


class DescriptionError(ValueError):
    """An element has a value that Service Bus does not take.

    Attributes:
        element: the wrong element.
        message: the fault, as the end of a sentence after a colon.
        remedy: the values that Service Bus takes.
    """

    def __init__(self, element: Element, message: str, remedy: str) -> None:
        super().__init__(f"{message} {remedy}")
        self.element = element
        self.message = message
        self.remedy = remedy
