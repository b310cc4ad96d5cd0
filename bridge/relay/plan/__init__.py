"""The relay's plan: its file, sides and routes, and the message that goes. Pure.

side, route          a namespace; from where to where, and how
positions            a text of TOML -> values, and where each stands
keys, faults         what each key takes; what is wrong with one, and where
side_tables, route_tables, chains, file
                     the parts of a file, and the whole: `read_file`
choice               which route takes a message: filters and `else`
expansion            routes with a `*` -> routes of the entities that are there
circles              routes that lead back to where they began
fidelity             what a route cannot keep, and what it would lose
source_identity      the name that a busbridge is told of a source
encoded_map          maps whose pairs keep their bytes
relayed_message      a received message -> the message that is sent
"""
