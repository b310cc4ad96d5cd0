"""The hand-over of messages from one namespace to another, without I/O."""
