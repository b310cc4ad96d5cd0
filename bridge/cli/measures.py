"""The metrics of a running bridge: counters of engine, sidecar and gateway in Prometheus's format.

Counters that change with every message are plain numbers, which are read on request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from itertools import accumulate
from typing import TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from bridge.access.access import Access
from bridge.background.supervisor import Supervisor
from bridge.cli.stalls import BOUNDS_S, Stalls
from bridge.engine.namespace import RabbitNamespace
from bridge.engine.poison import PLACES, Poison
from bridge.gateway.client.admission import ConnectionEnd, NotAdmitted
from bridge.gateway.server import Gateway
from bridge.machine.inbox.standbys import Standbys
from bridge.machine.suspects import Suspect
from bridge.sidecar.leader.meters import Histogram, Meters
from bridge.sidecar.sidecar import Sidecar

_PREFIX = "busbridge_"

_Reason = TypeVar("_Reason", ConnectionEnd, NotAdmitted)

_LABELS = ("entity",)

LEADERLESS_MAX = 10
"""Number of entities without a leader that have a sample of their own."""

_ENTITY_GAUGES = {
    "is_active": ("sequencer_active", "Whether this process numbers."),
    "backlog": ("inbox_backlog", "Arrivals that wait for their number."),
    "in_flight": ("sequencer_in_flight", "Publications that RabbitMQ has not confirmed yet."),
    "pending": ("scheduled_messages", "Messages that wait for their scheduled time."),
    "buckets": ("bucket_queues", "Queues of the timing wheel."),
    "left_out": (
        "subscriptions_left_out",
        "Subscriptions of a topic whose queues take nothing; the journal keeps what they miss.",
    ),
    "takeover_entries": ("takeover_entries", "Journal entries needed by the last takeover here."),
    "takeover_s": ("takeover_seconds", "How long the last takeover here took."),
}

_ENTITY_TOTALS = {
    "arrivals": ("arrivals", "Arrivals that the sequencer has carried out."),
    "published": ("journal_entries", "Entries written to the journal."),
    "activated": ("activated", "Scheduled messages that became active."),
    "duplicates": ("duplicates_dropped", "Messages whose id had been accepted in the window."),
    "copies_again": (
        "copies_dropped",
        "Messages of relays, and forwarded ones, that were dropped because they came before.",
    ),
    "copies_too_late": (
        "copies_too_late",
        "Messages of relays that became dead letters: they were not to come any more.",
    ),
    "lost": (
        "subscription_messages_lost",
        "Messages that had left the journal before a subscription that was left out came back.",
    ),
    "terms": ("sequencer_elections", "How often this process became the sequencer."),
}


async def families(
    namespace: RabbitNamespace,
    sidecar: Sidecar,
    gateway: Gateway | None,
    stalls: Stalls,
    supervisor: Supervisor,
    access: Access | None = None,
) -> tuple[Metric, ...]:
    """Return the current metrics; without a gateway, metrics of client connections are left out."""
    await sidecar.count_ready()
    return (
        *(_of_gateway(gateway) if gateway is not None else ()),
        *_of_engine(namespace),
        *_of_entities(sidecar.meters),
        *of_leaderless(sidecar.leaderless),
        *_of_bridges(namespace.membership.standbys),
        of_hidden(namespace.browsing.hidden),
        *_of_poison(namespace.poison),
        _of_silence([*namespace.state.silent, *sidecar.silent]),
        *_of_loop(stalls),
        *_of_background(supervisor),
        *(_of_issuers(access) if access is not None and access.issuer_keys else ()),
    )


def _of_gateway(gateway: Gateway) -> Iterator[Metric]:
    yield _gauge("connections", "Clients that are connected.", len(gateway.connections))
    admission, backlog = gateway.admission, gateway.backlog
    yield _gauge(
        "connections_unauthenticated",
        "Connections that have shown no token yet, in TLS's handshake or later.",
        admission.unauthenticated,
    )
    yield _by_reason("connections_refused", "Connections above it.", "limit", admission.refused)
    yield _by_reason("connections_ended", "Connections that were ended.", "reason", admission.ended)
    yield _gauge(
        "unconfirmed_bytes",
        "Messages that RabbitMQ has not confirmed, and requests under way.",
        backlog.waiting_bytes,
    )
    yield _gauge(
        "unfinished_bytes",
        "Frames and messages that have not come whole.",
        backlog.unfinished_bytes,
    )
    yield _gauge(
        "transacted_bytes",
        "Operations of transactions that are not discharged.",
        backlog.transacted.held,
    )


def _of_engine(namespace: RabbitNamespace) -> Iterator[Metric]:
    counters = namespace.counters
    for field in fields(counters):
        yield _total(field.name, field.metadata["help"], getattr(counters, field.name))
    yield _gauge("locks", "Messages that are locked.", namespace.state.locks)
    yield _gauge("kept_messages", "Messages kept for the next receiver.", namespace.state.buffered)
    yield _gauge(
        "commits_unanswered",
        "Commits of transactions that are published, and whose verdict is not known.",
        namespace.transactions.in_doubt,
    )


def _of_bridges(standbys: Standbys) -> Iterator[Metric]:
    yield _gauge("bridges", "The live bridges, this one included.", 1 + len(standbys.others))
    yield _gauge(
        "inboxes_consumed",
        "The inboxes that this bridge consumes, as leader or standby.",
        standbys.consumed,
    )


def _of_issuers(access: Access) -> Iterator[Metric]:
    age = GaugeMetricFamily(
        _PREFIX + "issuer_keys_age_seconds",
        "Time since the keys of an issuer of tokens were fetched.",
        labels=("issuer",),
    )
    failures = CounterMetricFamily(
        _PREFIX + "issuer_keys_failures",
        "Fetches of an issuer's keys that have failed.",
        labels=("issuer",),
    )
    for keys in access.issuer_keys:
        name = (str(keys.issuer),)
        failures.add_metric(name, keys.renewal.failures)
        if (age_s := keys.age_s) is not None:
            age.add_metric(name, age_s)
    yield from (age, failures)


def _of_background(supervisor: Supervisor) -> Iterator[Metric]:
    family = CounterMetricFamily(
        _PREFIX + "background_failures",
        "How often work in the background has ended and was begun again; the log says why.",
        labels=("task",),
    )
    for kind in {one.kind for one in supervisor.standing} | supervisor.failures.keys():
        family.add_metric((kind,), supervisor.failures[kind])
    yield family
    waits = supervisor.waits
    yield _gauge("waiting", "What has waited for more than 2 s; health names it.", len(waits.late))
    yield _gauge("waiting_longest_seconds", "How long what waits longest has.", waits.longest_s)


def _of_poison(poison: Poison) -> Iterator[Metric]:
    family = CounterMetricFamily(
        _PREFIX + "poison",
        "What could not be handled, by where it was; the log names it.",
        labels=("place",),
    )
    for place in PLACES:
        family.add_metric((place,), poison.counts[place])
    yield family


def of_hidden(hidden: Mapping[str, int]) -> Metric:
    """Return the number of messages hidden from peeks, because their journals have dropped them."""
    family = GaugeMetricFamily(
        _PREFIX + "peek_hidden_messages",
        "Messages that have left the journal, and that no peek shows; of what was peeked here.",
        labels=_LABELS,
    )
    for entity, count in hidden.items():
        family.add_metric((entity,), count)
    return family


def _of_silence(silent: Iterable[Suspect]) -> Metric:
    family = GaugeMetricFamily(
        _PREFIX + "queue_silent_since_seconds",
        "Since when RabbitMQ gives no answer for a queue or entity (seconds since 1970).",
        labels=("queue",),
    )
    for name, since_ms in {each.name: each.since_ms for each in silent}.items():
        family.add_metric((name,), since_ms / 1000)
    return family


def _of_loop(stalls: Stalls) -> Iterator[Metric]:
    yield _gauge(
        "loop_stall_longest_seconds",
        "The longest time for which the event loop stood still since the start.",
        stalls.longest_s,
    )
    family = HistogramMetricFamily(
        _PREFIX + "loop_stall_seconds", "How long the event loop stood still, 50 times a second."
    )
    bounds = (*map(str, BOUNDS_S), "+Inf")
    buckets = list(zip(bounds, map(float, accumulate(stalls.counts)), strict=True))
    family.add_metric((), buckets, stalls.total_s)
    yield family


def _of_entities(entities: Mapping[str, Meters]) -> Iterator[Metric]:
    for attribute, (name, text) in (_ENTITY_GAUGES | _ENTITY_TOTALS).items():
        kind = GaugeMetricFamily if attribute in _ENTITY_GAUGES else CounterMetricFamily
        family = kind(_PREFIX + name, text, labels=_LABELS)
        for entity, meters in entities.items():
            family.add_metric((entity,), getattr(meters, attribute))
        yield family
    lateness = HistogramMetricFamily(
        _PREFIX + "activation_lateness_seconds",
        "How late scheduled messages were published.",
        labels=_LABELS,
    )
    for entity, meters in entities.items():
        _add(lateness, (entity,), meters.lateness_ms)
    yield lateness


def of_leaderless(leaderless: Mapping[str, int]) -> Iterator[Metric]:
    """Yield the number of entities without a leader, and the times of the longest without."""
    yield _gauge(
        "entities_without_leader", "Entities for which nobody gives numbers.", len(leaderless)
    )
    family = GaugeMetricFamily(
        _PREFIX + "entity_without_leader_since_seconds",
        f"Since when nobody gives numbers (Unix time); of the {LEADERLESS_MAX} longest.",
        labels=_LABELS,
    )
    for entity, since_ms in list(leaderless.items())[:LEADERLESS_MAX]:
        family.add_metric((entity,), since_ms / 1000)
    if leaderless:
        yield family


def _add(family: HistogramMetricFamily, labels: tuple[str, ...], histogram: Histogram) -> None:
    bounds = (*(str(bound / 1000) for bound in histogram.bounds), "+Inf")
    buckets = list(zip(bounds, map(float, accumulate(histogram.counts)), strict=True))
    family.add_metric(labels, buckets, histogram.sum / 1000)


def _by_reason(name: str, text: str, label: str, counts: Mapping[_Reason, int]) -> Metric:
    family = CounterMetricFamily(_PREFIX + name, text, labels=(label,))
    for reason, count in counts.items():
        family.add_metric((reason.value,), count)
    return family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(_PREFIX + name, text, value)


def _total(name: str, text: str, value: float) -> Metric:
    """Return a counter; its sample's name ends with `_total`."""
    return CounterMetricFamily(_PREFIX + name, text, value)
