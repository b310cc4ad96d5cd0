"""Deferred messages: kept until a receiver asks for their sequence numbers."""
