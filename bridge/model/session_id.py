"""Session ids: Service Bus compares them without their case, and keeps each message's spelling.

Azure's engineers say so (azure-sdk-for-java 48759, durabletask 1334), and its .NET live test
CancelingDoesNotLoseSessionMessages needs it. A session is known by its folded id, which only `fold`
makes; it is never shown. Filters compare ids as they are written.
"""

from __future__ import annotations

import unicodedata
from typing import NewType

FoldedId = NewType("FoldedId", str)
"""A session id without its case."""

_STAY = frozenset("\u0131\u017f")
"""A dotless i and a long s, whose upper case is ASCII: .NET's invariant culture leaves them."""


def fold(session_id: str) -> FoldedId:
    """Return a session id in upper case, character by character, as .NET's invariant culture does.

    A character stays whose upper case is several characters, or that Unicode 3.2 lacks, or that is
    beyond U+FFFF. So the result, by which queues are chosen, is the same in every version of Python
    (Unicode never changes the case of a character that it has).
    """
    if session_id.isascii():
        return FoldedId(session_id.upper())
    return FoldedId("".join([_upper(each) for each in session_id]))


def _upper(character: str) -> str:
    upper = character.upper()
    if len(upper) != 1 or upper == character or character in _STAY or character > "\uffff":
        return character
    category = unicodedata.ucd_3_2_0.category
    return character if "Cn" in (category(character), category(upper)) else upper
