"""The type of a message in `$sb/events` by which a client asks who is there.

Each bridge answers with the name of its queue, to which questions are then sent.
"""

WHO = "who"
