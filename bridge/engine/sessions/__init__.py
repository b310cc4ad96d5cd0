"""Sessions: the owners of a session entity's messages, and the receivers that lock sessions."""
