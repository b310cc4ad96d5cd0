"""The relay: moves messages from entities of one namespace to entities of another, for weeks.

plan            pure: the file, its routes, and what a message becomes on its way
machine         pure: the hand-over of messages, and what a target may forget
running         links, tasks and clocks: the routes as they run
inspection      what a file's namespaces show before it runs
entities        what is there, and what it is like
file_secrets    where connection strings are read from
"""
