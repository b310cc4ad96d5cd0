"""The type of a message in `$sb/events` by which a client asks for the running bridges.

Each bridge answers with the name of its queue, to which the client then sends questions.
"""

WHO = "who"
