"""Ownership of what a single active consumer queue stands for: one process has it, others wait."""
