"""Options for the properties of entities, one for each that Azure has: `--lock-duration PT30S`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping

from bridge.model import values
from bridge.model.duration import format_duration
from bridge.model.properties import CREATE_ONLY, PROPERTIES, EntityKind, names_of

_UNITS: dict[values.Converter, str] = {
    values.duration_ms: "DURATION",
    values.integer: "COUNT",
    values.message_size_kb: "KB",
    values.entity_name: "ENTITY",
    values.status: "STATUS",
}
_HELP: dict[values.Converter, str] = {
    values.duration_ms: "such as PT30S or P14D",
    values.status: "Active, Disabled, SendDisabled or ReceiveDisabled",
    values.entity_name: 'a queue or topic; "" for none',
}


def option_of(name: str) -> str:
    """Return the option of a property of Azure's name: `LockDuration` is `--lock-duration`."""
    return "--" + field_of(name).replace("_", "-")


def field_of(name: str) -> str:
    """Return the name of a property in JSON: `LockDuration` is `lock_duration`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def add_properties(parser: argparse.ArgumentParser, kind: EntityKind, *, is_new: bool) -> None:
    """Add the options of all properties that this kind of entity has.

    Args:
        is_new: whether the entity is being created; later, some properties cannot change.
    """
    group = parser.add_argument_group(
        "properties", "What is not given " + ("is the service's choice." if is_new else "stays.")
    )
    for name in names_of(kind):
        known = PROPERTIES[name]
        if known.field in CREATE_ONLY and not is_new:
            continue
        if known.read is values.boolean:
            group.add_argument(
                option_of(name), action=argparse.BooleanOptionalAction, dest=name, help=name
            )
            continue
        group.add_argument(
            option_of(name),
            dest=name,
            type=_reader(known.read),
            metavar=_UNITS.get(known.read, "TEXT"),
            help=f"{name}: {_HELP[known.read]}" if known.read in _HELP else name,
        )


def _reader(read: values.Converter) -> Callable[[str], str]:
    """Return the function that checks a value and returns its text for the service."""

    def text_of(given: str) -> str:
        try:
            found = read(given)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{given!r}: {error}") from None
        if read is values.duration_ms:
            assert isinstance(found, int)
            return format_duration(found)
        return str(getattr(found, "value", given))

    return text_of


def given_properties(
    arguments: argparse.Namespace, kind: EntityKind, namespace: str
) -> dict[str, str]:
    """Return the texts of the properties that the options give, by Azure's names.

    Args:
        namespace: the namespace's host, for the URLs of what is forwarded to, as the SDKs write it.
    """
    found = {}
    for name in names_of(kind):
        given = getattr(arguments, name, None)
        if isinstance(given, bool):
            found[name] = "true" if given else "false"
        elif given and PROPERTIES[name].read is values.entity_name and "://" not in given:
            found[name] = f"sb://{namespace}/{given}"
        elif given is not None:
            found[name] = str(given)
    return found


def shown_properties(properties: Mapping[str, str]) -> dict[str, object]:
    """Return properties for people and scripts: numbers, truth values, and texts."""
    return {field_of(name): _shown(name, text) for name, text in properties.items()}


def _shown(name: str, text: str) -> object:
    read = PROPERTIES[name].read
    if read is values.boolean or read in (values.integer, values.message_size_kb):
        try:
            return values.boolean(text) if read is values.boolean else values.integer(text)
        except ValueError:
            return text
    return text
