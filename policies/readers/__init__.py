"""Readers: one module for each format of a file that defines a Service Bus namespace.

`read` finds the format from the content.
"""

from policies.readers.armtemplate import read_parameters
from policies.readers.detect import FORMATS, decode, read
from policies.readers.reading import Reading
from policies.readers.several import read_all

__all__ = ["FORMATS", "Reading", "decode", "read", "read_all", "read_parameters"]
