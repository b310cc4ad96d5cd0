"""AMQP 1.0 on the wire: types, performatives, frames and messages. Pure; bytes in, values out."""
