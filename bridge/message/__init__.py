"""The content and the moves of a message: values in, values out, and no connection.

message       a delivered message, read as a message of Service Bus
fate          whether a receiver may have it
moves         the publications when it leaves its queue in another way than by complete
envelopes     a sender's messages, as the envelopes that a sequencer takes
received      a message on its way to an application
shown         the form in which one process shows another a message
subscriptions the short id in a subscription's messages

The bytes of the content are `bridge.wire`'s: stamps, headers, envelopes, replies.
"""
