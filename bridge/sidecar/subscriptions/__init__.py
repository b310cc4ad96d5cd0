"""Subscriptions that a topic's publishes leave out, or whose queues are missing."""
