"""The Service Bus model: entities, durations, names, numbers, tokens, errors. No I/O, no clock."""
