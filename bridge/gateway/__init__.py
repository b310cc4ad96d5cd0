"""AMQP 1.0: unmodified Azure SDKs on one side, the engine's verbs on the other."""
