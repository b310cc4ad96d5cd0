"""Whether a subscription may have its rules: each by itself, and with those of the others."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from bridge.engine.administration.directory import Directory
from bridge.model import entity as model
from bridge.model.errors import QuotaExceeded
from bridge.model.filters.errors import InvalidRule
from bridge.model.filters.mismatches import mismatches
from bridge.model.filters.rules import check_rule

SQL_FILTERS_MAX = 2_000
CORRELATION_FILTERS_MAX = 100_000
"""The most filters of a topic's subscriptions together (Azure's quotas); True and False are SQL."""

log = logging.getLogger(__name__)


def check_rules(directory: Directory, entity: model.Entity, there: Sequence[model.Rule]) -> None:
    """Refuse invalid new rules of a subscription, or more filters than its topic may have."""
    if not isinstance(entity, model.Subscription):
        return
    known = {each.name.lower(): each for each in there}
    new = [each for each in entity.rules if known.get(each.name.lower()) != each]
    for rule in new:
        _check(entity.path, rule)
    topic = directory.find(entity.topic)
    others = topic.subscriptions if isinstance(topic, model.Topic) else ()
    rules = [
        *entity.rules,
        *(
            rule
            for each in others
            if each.path.lower() != entity.path.lower()
            for rule in each.rules
        ),
    ]
    correlation = sum(isinstance(each.filter, model.CorrelationFilter) for each in rules)
    has_room = (
        correlation <= CORRELATION_FILTERS_MAX and len(rules) - correlation <= SQL_FILTERS_MAX
    )
    if new and not has_room:
        raise QuotaExceeded(
            f"The topic '{entity.topic}' may have {SQL_FILTERS_MAX} SQL filters and "
            f"{CORRELATION_FILTERS_MAX} correlation filters in all its subscriptions."
        )


def _check(subscription: str, rule: model.Rule) -> None:
    try:
        check_rule(rule)
    except InvalidRule as error:
        raise InvalidRule(f"The rule '{rule.name}' of '{subscription}': {error}") from None
    for mismatch in mismatches(rule):
        log.warning("rule.mismatch path=%s rule=%s error=%r", subscription, rule.name, mismatch)
