"""The content and the moves of a message, and its channel: values in, values out, no connection.

message       a delivered message, read as a message of Service Bus
fate          whether a receiver may have it
held          a message that this process holds unacked
port          a channel of RabbitMQ as receiving needs it, of any client
fetches       windows, gets and looks on such channels
moves         the publications when it leaves its queue in another way than by complete
envelopes     a sender's messages, as the envelopes that a sequencer takes
received      a message on its way to an application
shown         the form in which one process shows another a message
subscriptions the short id in a subscription's messages

The bytes of the content are `bridge.wire`'s: stamps, headers, envelopes, replies.
"""
