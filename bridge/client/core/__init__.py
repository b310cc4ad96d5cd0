"""What both lanes share: no I/O; what is to be done goes to a `wire.Channel`."""
