"""What commands do with messages, without I/O: time and chance are arguments, effects are values.

selection   which messages are meant: a condition in SQL, states, numbers
condition   SQL that messages are held against
groups      dead letters by reason, source and exception, with counts and ages
changes     what is changed in messages that are sent again
taking      the machine that takes messages out of an entity, to move or to remove them
undo_file   what was taken, so that it can be undone
lines       messages as lines of JSON, and lines as messages
migration   what the move of a namespace takes: definitions that differ, counts, order, time
"""
