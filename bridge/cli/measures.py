"""The metrics of a running bridge: what engine, sidecar and gateway count, as samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from bridge.admin.metrics import Sample
from bridge.engine.namespace import RabbitNamespace
from bridge.gateway.server import Gateway
from bridge.sidecar.meters import Histogram, Meters
from bridge.sidecar.sidecar import Sidecar

_PREFIX = "busbridge_"

_GAUGES = {
    "backlog": ("inbox_backlog", "Arrivals that wait for their number."),
    "in_flight": ("sequencer_in_flight", "Publications that RabbitMQ has not confirmed yet."),
    "pending": ("scheduled_messages", "Messages that wait for their scheduled time."),
    "buckets": ("bucket_queues", "Queues of the timing wheel."),
}

_TOTALS = {
    "arrivals": ("arrivals_total", "Arrivals that the sequencer has carried out."),
    "published": ("journal_entries_total", "Entries written to the journal."),
    "activated": ("activated_total", "Scheduled messages that became active."),
    "lives": ("sequencer_elections_total", "How often this process became the sequencer."),
}


async def samples(
    namespace: RabbitNamespace, sidecar: Sidecar, gateway: Gateway
) -> Iterator[Sample]:
    """Return the samples of now."""
    await sidecar.count_ready()
    return _samples(namespace, sidecar, gateway)


def _samples(namespace: RabbitNamespace, sidecar: Sidecar, gateway: Gateway) -> Iterator[Sample]:
    yield _sample("connections", "Clients that are connected.", "gauge", len(gateway.connections))
    counters = namespace.counters
    for field in fields(counters):
        yield _sample(
            f"{field.name}_total",
            field.metadata["help"],
            "counter",
            getattr(counters, field.name),
        )
    yield _sample("locks", "Messages that are locked.", "gauge", namespace.locks)
    yield _sample("kept_messages", "Messages kept for the next receiver.", "gauge", namespace.kept)
    for entity, meters in sidecar.meters.items():
        yield from _entity_samples(entity, meters)


def _entity_samples(entity: str, meters: Meters) -> Iterator[Sample]:
    labels = {"entity": entity}
    active = int(meters.is_active)
    yield _sample("sequencer_active", "Whether this process numbers.", "gauge", active, labels)
    for attribute, (name, text) in _GAUGES.items():
        yield _sample(name, text, "gauge", getattr(meters, attribute), labels)
    for attribute, (name, text) in _TOTALS.items():
        yield _sample(name, text, "counter", getattr(meters, attribute), labels)
    yield from _histogram(meters.lateness_ms, labels)


def _histogram(histogram: Histogram, labels: dict[str, str]) -> Iterator[Sample]:
    name = _PREFIX + "activation_lateness_seconds"
    text = "How late scheduled messages were published."
    total = 0
    bounds = [str(bound / 1000) for bound in histogram.bounds] + ["+Inf"]
    for bound, count in zip(bounds, histogram.counts, strict=True):
        total += count
        yield Sample(
            name=name,
            help=text,
            kind="histogram",
            value=total,
            labels=labels | {"le": bound},
            suffix="_bucket",
        )
    for suffix, value in (("_sum", histogram.sum / 1000), ("_count", total)):
        yield Sample(
            name=name, help=text, kind="histogram", value=value, labels=labels, suffix=suffix
        )


def _sample(
    name: str, text: str, kind: str, value: float, labels: dict[str, str] | None = None
) -> Sample:
    return Sample(name=_PREFIX + name, help=text, kind=kind, value=value, labels=labels or {})
