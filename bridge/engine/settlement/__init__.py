"""Peek-locks, and the settlement of locked messages."""
