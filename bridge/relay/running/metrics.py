"""The relay's metrics: families of Prometheus with a label for the route."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from bridge.relay.running.status import RouteState, RouteStatus

COUNTERS = (
    ("relayed", "relayed", "Messages that the target has confirmed."),
    ("refused", "refused", "Messages that the target refuses for good."),
    ("returned", "returned", "Messages that had been at the target before, and were completed."),
    ("filtered", "filtered", "Messages that no filter takes, and that were settled."),
    ("expired", "expired", "Messages given back to the source, as their time was over."),
    ("incomplete", "incomplete", "Relayed messages that come again: not settled at the source."),
    ("without_pairs", "without_pairs", "Messages relayed without some of the relay's properties."),
)
"""Name, attribute of the status, help."""


def families(statuses: Sequence[RouteStatus]) -> Iterable[Metric]:
    """Return the metrics of all routes."""
    for name, attribute, words in COUNTERS:
        counter = CounterMetricFamily(f"busbridge_relay_{name}", words, labels=["route"])
        for each in statuses:
            counter.add_metric([each.name], getattr(each, attribute))
        yield counter
    gauges = (
        ("unconfirmed", "Messages in hand that the target has not confirmed.", "unconfirmed"),
        ("held_up_sessions", "Sessions that do not go on; the others do.", "held_up_sessions"),
        ("lag_seconds", "Age of the source's oldest message, as last seen.", "lag_s"),
    )
    for name, words, attribute in gauges:
        gauge = GaugeMetricFamily(f"busbridge_relay_{name}", words, labels=["route"])
        for each in statuses:
            gauge.add_metric([each.name], getattr(each, attribute))
        yield gauge
    state = GaugeMetricFamily(
        "busbridge_relay_state", "1 for the state that the route is in.", labels=["route", "state"]
    )
    since = GaugeMetricFamily(
        "busbridge_relay_state_since_timestamp_seconds",
        "Since when the route is in its state.",
        labels=["route"],
    )
    failed = GaugeMetricFamily(
        "busbridge_relay_last_error_timestamp_seconds",
        "When the route's last error was; 0 for none.",
        labels=["route"],
    )
    for each in statuses:
        for known in RouteState:
            state.add_metric([each.name, known.value], float(each.state is known))
        since.add_metric([each.name], each.since_ms / 1000)
        failed.add_metric([each.name], each.last_error_ms / 1000)
    yield from (state, since, failed)
