"""The leader of an entity's inbox: numbers, journal, schedule, subscriptions, takeover."""
