"""The table: each property of Service Bus, what it is in RabbitMQ, and how well that does.

The loss report and the table of docs/policies.md are made from it.
"""

from __future__ import annotations

from policies.row import Row
from policies.rows_entities import ENTITIES
from policies.rows_messages import MESSAGES

ROWS: tuple[Row, ...] = (*MESSAGES, *ENTITIES)
"""Every property, in the order of docs and reports."""
