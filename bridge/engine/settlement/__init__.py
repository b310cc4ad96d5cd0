"""Locks, and what becomes of a locked message."""
