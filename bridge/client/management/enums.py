"""Enumerations of the administration API, under the SDK's names; properties hold plain texts."""

from __future__ import annotations

from enum import StrEnum


class ApiVersion(StrEnum):
    """Accepted and not used: a bridge has one version of its API."""

    V2024_05 = "2024-05"
    V2021_05 = "2021-05"
    V2017_04 = "2017-04"


class AccessRights(StrEnum):
    """The rights of a shared access rule."""

    MANAGE = "Manage"
    SEND = "Send"
    LISTEN = "Listen"


class EntityStatus(StrEnum):
    """Which operations an entity allows."""

    ACTIVE = "Active"
    CREATING = "Creating"
    DELETING = "Deleting"
    DISABLED = "Disabled"
    RECEIVE_DISABLED = "ReceiveDisabled"
    RENAMING = "Renaming"
    RESTORING = "Restoring"
    SEND_DISABLED = "SendDisabled"
    UNKNOWN = "Unknown"


class EntityAvailabilityStatus(StrEnum):
    """Whether an entity can be used."""

    AVAILABLE = "Available"
    LIMITED = "Limited"
    RENAMING = "Renaming"
    RESTORING = "Restoring"
    UNKNOWN = "Unknown"


class MessagingSku(StrEnum):
    """The tier of a namespace."""

    BASIC = "Basic"
    PREMIUM = "Premium"
    STANDARD = "Standard"


class NamespaceType(StrEnum):
    """The kind of a namespace."""

    MESSAGING = "Messaging"
    NOTIFICATION_HUB = "NotificationHub"
    MIXED = "Mixed"
    EVENT_HUB = "EventHub"
    RELAY = "Relay"
