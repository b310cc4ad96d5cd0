"""Nodes that answer requests: `$cbs`, `$management`, the coordinator of transactions."""
