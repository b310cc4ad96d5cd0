"""Auto-forwarding: messages of a queue or subscription are sent on to another entity."""
