"""The REST API of messages: send, receive, settle over HTTP, on the port of the gateway."""
