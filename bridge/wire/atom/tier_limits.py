"""Sizes that administration takes by the namespace's tier; files of definitions may have others."""

from __future__ import annotations

from bridge.model import entity as model
from bridge.model.errors import ArgumentError
from bridge.model.tiers import CAPACITIES_MB, PREMIUM_CAPACITIES_MB, PREMIUM_MESSAGE_SIZE_KB


def check_message_size(entity: model.Entity, namespace: str, tier: model.Tier) -> None:
    """Raise if the namespace's tier does not allow an entity's largest message size.

    Source of the words: the recorded answers of Azure's Python live tests
    (`test_mgmt_queue_premium_create_with_queue_description`); those of the other tiers are ours.

    Args:
        namespace: the namespace's name.

    Raises:
        ArgumentError: the size is set and the tier is not Premium, or it is outside of Premium's
            range.
    """
    size_kb = getattr(entity, "max_message_size_kb", None)
    if size_kb is None:
        return
    if tier is not model.Tier.PREMIUM:
        raise ArgumentError(
            f"SubCode=40000. The property 'MaxMessageSizeInKilobytes' can be set in a Premium "
            f"namespace only, and {namespace!r} is using {tier.value!r} tier.\r\n"
            f"Parameter name: MaxMessageSizeInKilobytes\r\nActual value was {size_kb}."
        )
    if size_kb not in PREMIUM_MESSAGE_SIZE_KB:
        low_kb, high_kb = PREMIUM_MESSAGE_SIZE_KB[0], PREMIUM_MESSAGE_SIZE_KB[-1]
        raise ArgumentError(
            f"SubCode=40000. The property value for 'MaxMessageSizeInKilobytes' must be between "
            f"{low_kb} and {high_kb} when the namespace {namespace!r} is using 'Premium' tier.\r\n"
            f"Parameter name: MaxMessageSizeInKilobytes\r\nActual value was {size_kb}."
        )


def check_capacity(entity: model.Entity, there: model.Entity | None, tier: model.Tier) -> None:
    """Raise if administration does not take an entity's MaxSizeInMegabytes.

    Source: azure-cli issue 10967. Definitions that come as files may have others, which stay when
    something else of the entity is changed.

    Args:
        there: the entity before the change.

    Raises:
        ArgumentError: the size is no whole GB from 1 to 5, nor one of Premium's.
    """
    size_mb = getattr(entity, "max_size_mb", None)
    if size_mb is None or size_mb == getattr(there, "max_size_mb", None):
        return
    sizes_mb = CAPACITIES_MB + (PREMIUM_CAPACITIES_MB if tier is model.Tier.PREMIUM else ())
    if size_mb not in sizes_mb:
        raise ArgumentError(
            f"SubCode=40000. The value {size_mb} of the property MaxSizeInMegabytes is not valid: "
            f"in a namespace of the {tier.value} tier it is one of "
            f"{', '.join(map(str, sizes_mb))}.\r\nParameter name: MaxSizeInMegabytes\r\n"
            f"Actual value was {size_mb}."
        )
