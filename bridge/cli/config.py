"""Reading of `--config`, and the namespace that a start applies."""

from __future__ import annotations

import logging
from pathlib import Path

from bridge.cli.settings import Settings, SettingsError
from bridge.model import entity as model
from policies.errors import ReadError
from policies.readers import emulator, jsontext
from policies.readers.detect import decode

_log = logging.getLogger("busbridge.serve")


def text_of(path: Path) -> str:
    """Return a file's text, in the form that the readers of `policies` take.

    Raises:
        SettingsError: the file cannot be read.
        ReadError: the file is no text.
    """
    try:
        return decode(path.read_bytes(), str(path))
    except OSError as error:
        raise SettingsError(f"The file {path} cannot be read: {error.strerror}.") from error


def read_config(settings: Settings) -> model.Namespace | None:
    """Return the namespace of `--config`, or `None` without `--config`.

    Raises:
        SettingsError: the file is invalid.
    """
    if settings.config is None:
        return None
    try:
        source = str(settings.config)
        document = jsontext.parse(text_of(settings.config), source)
        reading = emulator.read_document(document, source)
    except ReadError as error:
        raise SettingsError(str(error)) from error
    for finding in reading.findings:
        _log.warning(
            "config.finding entity=%s property=%s message=%r",
            finding.entity,
            finding.property,
            finding.message,
        )
    return reading.namespace


def applied(
    stored: model.Namespace, wanted: model.Namespace | None, tier: model.Tier | None
) -> model.Namespace:
    """Return the namespace to apply: unspecified parts stay as stored in RabbitMQ."""
    return model.Namespace(
        name=stored.name if wanted is None else wanted.name,
        tier=tier or stored.tier,
        queues=() if wanted is None else wanted.queues,
        topics=() if wanted is None else wanted.topics,
        authorization_rules=stored.authorization_rules,
    )
