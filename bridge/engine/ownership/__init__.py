"""Ownership by single active consumer queues: the active consumer owns, the others stand by."""
