"""What stands in a message, and what becomes of it: values in, values out, and no connection.

message       what was delivered, read as a message of Service Bus
fate          whether a receiver may have it
moves         what is published when it leaves its queue otherwise than by being completed
envelopes     what a sender hands in, as the envelopes that a sequencer takes
received      a message on its way to an application
shown         the form in which one process shows it another
subscriptions what a subscription's messages are told apart by

What stands in it in bytes is `bridge.wire`'s: stamps, headers, envelopes, replies.
"""
