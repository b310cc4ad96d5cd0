"""Dispositions as fields: in questions to other bridges, and in the outcomes of transactions."""

from __future__ import annotations

from typing import Final, cast

from bridge.engine.api import Abandon, Complete, DeadLetter, Defer, Disposition, Release
from bridge.wire.basic import Table, decode_table, encode_table, text
from bridge.wire.commits import OutcomeKind
from bridge.wire.mapping.fields import AMQP_ENCODED
from bridge.wire.sessions import string

_KINDS: Final[dict[type[Disposition], OutcomeKind]] = {
    Complete: OutcomeKind.COMPLETE,
    Abandon: OutcomeKind.ABANDON,
    DeadLetter: OutcomeKind.DEAD_LETTER,
    Defer: OutcomeKind.DEFER,
    Release: OutcomeKind.ABANDON,
}
_MADE: Final[dict[OutcomeKind, type[Disposition]]] = {
    OutcomeKind.COMPLETE: Complete,
    OutcomeKind.ABANDON: Abandon,
    OutcomeKind.DEAD_LETTER: DeadLetter,
    OutcomeKind.DEFER: Defer,
    OutcomeKind.DROP: Complete,
}


def outcome_of(disposition: Disposition) -> tuple[OutcomeKind, bytes]:
    """Return a disposition as an outcome of a transaction: its kind, and its details.

    What only makes the message available again has no details.
    """
    has_details = getattr(disposition, "properties", {}) or isinstance(disposition, DeadLetter)
    details = encode_table(fields_of(disposition)) if has_details else b""
    return _KINDS[type(disposition)], details


def disposition_of(kind: OutcomeKind, details: bytes) -> Disposition:
    """Return the disposition that carries an outcome out.

    Raises:
        ValueError, LookupError: the details are not those of `outcome_of`.
    """
    fields: Table = {"plain": ("F", {}), "encoded": ("F", {})}
    if details:
        fields |= decode_table(details)[0]
    return disposition_in(_MADE[kind], fields)


def fields_of(disposition: Disposition) -> Table:
    """Return what a disposition has beside its kind."""
    found: Table = {}
    for name in ("reason", "description"):
        value = getattr(disposition, name, None)
        if value is not None:
            found[name] = text(value)
    plain: Table = {}
    encoded: Table = {}
    for name, field in getattr(disposition, "properties", {}).items():
        if field[0] == AMQP_ENCODED:
            encoded[name] = ("x", field[1])
        else:
            plain[name] = field
    return found | {"plain": ("F", plain), "encoded": ("F", encoded)}


def disposition_in(made: type[Disposition], fields: Table) -> Disposition:
    """Return the disposition of a kind in the fields of `fields_of`; raises LookupError."""
    if made is Complete or made is Release:
        return made()
    properties = dict(cast(Table, fields["plain"][1]))
    for name, field in cast(Table, fields["encoded"][1]).items():
        properties[name] = (AMQP_ENCODED, field[1])
    if made is DeadLetter:
        return DeadLetter(
            reason=string(fields, "reason") if "reason" in fields else None,
            description=string(fields, "description") if "description" in fields else None,
            properties=properties,
        )
    return Abandon(properties=properties) if made is Abandon else Defer(properties=properties)
