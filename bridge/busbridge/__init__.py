"""The library under the wheel's own name: `busbridge.client` has what `bridge.client` has.

The wheel has this folder beside `bridge`; the classes are the same ones.
"""
