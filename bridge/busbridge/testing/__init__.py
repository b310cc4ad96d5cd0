"""`bridge.testing` under the wheel's own name."""
