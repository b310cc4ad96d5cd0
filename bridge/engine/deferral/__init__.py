"""Deferred messages: held until somebody asks for their numbers."""
