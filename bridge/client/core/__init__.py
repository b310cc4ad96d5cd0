"""The logic that both lanes share, without I/O: all output goes to a `wire.Channel`."""
