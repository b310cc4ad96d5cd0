"""State machines: (command, now) -> (reply, effects). Pure."""
