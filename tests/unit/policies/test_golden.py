"""One namespace, written down in every format that can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.model import entity as model
from bridge.model.entity import DAY_MS, MINUTE_MS, SECOND_MS
from bridge.topology import definitions
from policies.readers import decode, read
from policies.readers.armtemplate import read_parameters

GOLDEN = Path(__file__).parent / "golden"

CONTOSO = model.Namespace(
    name="contoso",
    queues=(
        model.Queue(
            name="orders",
            lock_duration_ms=30 * SECOND_MS,
            max_size_mb=2048,
            requires_duplicate_detection=True,
            default_message_time_to_live_ms=14 * DAY_MS,
            dead_lettering_on_message_expiration=True,
            duplicate_detection_history_time_window_ms=5 * MINUTE_MS,
            max_delivery_count=5,
        ),
        model.Queue(
            name="invoices", requires_session=True, forward_dead_lettered_messages_to="errors"
        ),
        model.Queue(name="errors"),
        model.Queue(
            name="archive/2024", auto_delete_on_idle_ms=60 * MINUTE_MS, forward_to="errors"
        ),
    ),
    topics=(
        model.Topic(
            name="events",
            default_message_time_to_live_ms=DAY_MS,
            subscriptions=(
                model.Subscription(topic="events", name="audit", max_delivery_count=20),
                model.Subscription(
                    topic="events",
                    name="billing",
                    lock_duration_ms=2 * MINUTE_MS,
                    default_message_time_to_live_ms=60 * MINUTE_MS,
                    dead_lettering_on_message_expiration=True,
                    rules=(
                        model.Rule(
                            name="high",
                            filter=model.SqlFilter(
                                expression="priority > 3 AND sys.To = 'billing'"
                            ),
                            action="SET sys.Label = 'urgent'",
                        ),
                        model.Rule(
                            name="red",
                            filter=model.CorrelationFilter(
                                label="order", properties=(("color", "red"),)
                            ),
                        ),
                    ),
                ),
            ),
        ),
    ),
)

FINDINGS = {
    "Config.json": [],
    "template.json": [],
    "bicep.json": [],
    "az.json": [],
    "state.json": [],
    "plan.json": [],
    "feeds.xml": [],
    "explorer.xml": ["Rule red"],
    "definitions.json": [],
}
"""Each file, and the properties of which its reader says that something is missing."""


def sorted_by_name(namespace: model.Namespace) -> model.Namespace:
    """Return the namespace with its entities in the order of their names."""
    return definitions.assemble(namespace, definitions.entities(namespace))


@pytest.mark.parametrize("file", FINDINGS)
def test_every_format_gives_the_same_namespace(file: str) -> None:
    """The same namespace in any format is the same model, and says what is not exact."""
    parameters = None
    if file == "template.json":
        parameters = read_parameters((GOLDEN / "parameters.json").read_text(), "parameters.json")

    reading = read(decode((GOLDEN / file).read_bytes(), file), file, parameters=parameters)

    assert sorted_by_name(CONTOSO) == sorted_by_name(reading.namespace)
    assert FINDINGS[file] == [finding.property for finding in reading.findings]


@pytest.mark.parametrize("file", FINDINGS)
def test_encodings_that_windows_tools_write_are_read(file: str) -> None:
    """UTF-8 with a byte order mark and PowerShell's UTF-16 give the same text as plain UTF-8."""
    text = (GOLDEN / file).read_text()

    assert text == decode(text.encode("utf-8-sig"), file)
    assert text == decode(text.encode("utf-16"), file)
