"""Auto-forwarding: messages of a queue or subscription go on to another entity."""
