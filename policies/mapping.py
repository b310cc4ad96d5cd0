"""The mapping table: each property of Service Bus, its counterpart in RabbitMQ, and its grades.

The loss report and the table in docs/policies.md are made from this table.
"""

from __future__ import annotations

from policies.row import Row
from policies.rows_entities import ENTITIES
from policies.rows_messages import MESSAGES

ROWS: tuple[Row, ...] = (*MESSAGES, *ENTITIES)
"""Every property, in the order of docs and reports."""
