"""The gateway: AMQP 1.0 for unmodified Azure SDKs, on top of the engine's verbs."""
