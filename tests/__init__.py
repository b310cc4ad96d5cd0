"""The tests of the bridge."""
