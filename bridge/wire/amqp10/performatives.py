"""The performatives of transport and security, and the types in their fields.

OASIS AMQP 1.0, part 2 (transport), part 3 (delivery states, sources and targets), part 4
(transactions) and part 5 (SASL). Order, type and default of each
field are the specification's; `composite` reads and writes the types by these declarations.
"""

from __future__ import annotations

from dataclasses import replace

from bridge.wire.amqp10.composite import (
    U8,
    U16,
    U32,
    U64,
    Any_,
    Bin,
    Bool,
    Fields,
    Sym,
    Syms,
    Text,
)
from bridge.wire.amqp10.declaration import composite

U32_MAX = 0xFFFFFFFF


@composite(0x10, "amqp:open:list")
class Open:
    """Begins a connection."""

    container_id: Text
    hostname: Text | None = None
    max_frame_size: U32 = U32_MAX
    channel_max: U16 = 0xFFFF
    idle_time_out: U32 | None = None
    outgoing_locales: Syms | None = None
    incoming_locales: Syms | None = None
    offered_capabilities: Syms | None = None
    desired_capabilities: Syms | None = None
    properties: Fields | None = None


@composite(0x11, "amqp:begin:list")
class Begin:
    """Begins a session on a channel."""

    remote_channel: U16 | None
    next_outgoing_id: U32
    incoming_window: U32
    outgoing_window: U32
    handle_max: U32 = U32_MAX
    offered_capabilities: Syms | None = None
    desired_capabilities: Syms | None = None
    properties: Fields | None = None


@composite(0x12, "amqp:attach:list")
class Attach:
    """Attaches a link to a session; `role` is true for the receiving end."""

    name: Text
    handle: U32
    role: Bool
    snd_settle_mode: U8 = 2
    rcv_settle_mode: U8 = 0
    source: Any_ | None = None
    target: Any_ | None = None
    unsettled: Fields | None = None
    incomplete_unsettled: Bool = False
    initial_delivery_count: U32 | None = None
    max_message_size: U64 | None = None
    offered_capabilities: Syms | None = None
    desired_capabilities: Syms | None = None
    properties: Fields | None = None


@composite(0x13, "amqp:flow:list")
class Flow:
    """Tells the state of a session's windows and, with a handle, of a link's credit."""

    next_incoming_id: U32 | None
    incoming_window: U32
    next_outgoing_id: U32
    outgoing_window: U32
    handle: U32 | None = None
    delivery_count: U32 | None = None
    link_credit: U32 | None = None
    available: U32 | None = None
    drain: Bool = False
    echo: Bool = False
    properties: Fields | None = None


@composite(0x14, "amqp:transfer:list")
class Transfer:
    """Carries a message or a part of one; the payload follows the performative."""

    handle: U32
    delivery_id: U32 | None = None
    delivery_tag: Bin | None = None
    message_format: U32 | None = None
    settled: Bool | None = None
    more: Bool = False
    rcv_settle_mode: U8 | None = None
    state: Any_ | None = None
    resume: Bool = False
    aborted: Bool = False
    batchable: Bool = False

    def joined(self, part: Transfer) -> Transfer:
        """Return the first transfer of a message with what a later part of it says."""
        state = self.state if part.state is None else part.state
        if state is self.state and not part.settled:
            return self
        return replace(self, settled=bool(part.settled or self.settled), state=state)


@composite(0x15, "amqp:disposition:list")
class Disposition:
    """Tells the state of deliveries `first` to `last`."""

    role: Bool
    first: U32
    last: U32 | None = None
    settled: Bool = False
    state: Any_ | None = None
    batchable: Bool = False


@composite(0x16, "amqp:detach:list")
class Detach:
    """Detaches a link, or with `closed` ends it."""

    handle: U32
    closed: Bool = False
    error: Any_ | None = None


@composite(0x17, "amqp:end:list")
class End:
    """Ends a session."""

    error: Any_ | None = None


@composite(0x18, "amqp:close:list")
class Close:
    """Ends a connection."""

    error: Any_ | None = None


@composite(0x1D, "amqp:error:list")
class Error:
    """An error: its condition and a description."""

    condition: Sym
    description: Text | None = None
    info: Fields | None = None


@composite(0x23, "amqp:received:list")
class Received:
    """Delivery state: the position up to which a delivery has arrived."""

    section_number: U32
    section_offset: U64


@composite(0x24, "amqp:accepted:list")
class Accepted:
    """Outcome: the receiver has accepted the message."""


@composite(0x25, "amqp:rejected:list")
class Rejected:
    """Outcome: the receiver has refused the message."""

    error: Any_ | None = None


@composite(0x26, "amqp:released:list")
class Released:
    """Outcome: the receiver has returned the message unchanged."""


@composite(0x27, "amqp:modified:list")
class Modified:
    """Outcome: the receiver has returned the message with changes."""

    delivery_failed: Bool = False
    undeliverable_here: Bool = False
    message_annotations: Fields | None = None


@composite(0x28, "amqp:source:list")
class Source:
    """Where a link's messages come from."""

    address: Any_ | None = None
    durable: U32 = 0
    expiry_policy: Sym = "session-end"
    timeout: U32 = 0
    dynamic: Bool = False
    dynamic_node_properties: Fields | None = None
    distribution_mode: Sym | None = None
    filter: Fields | None = None
    default_outcome: Any_ | None = None
    outcomes: Syms | None = None
    capabilities: Syms | None = None


@composite(0x29, "amqp:target:list")
class Target:
    """Where a link's messages go."""

    address: Any_ | None = None
    durable: U32 = 0
    expiry_policy: Sym = "session-end"
    timeout: U32 = 0
    dynamic: Bool = False
    dynamic_node_properties: Fields | None = None
    capabilities: Syms | None = None


@composite(0x30, "amqp:coordinator:list")
class Coordinator:
    """The target of a link that controls transactions."""

    capabilities: Syms | None = None


@composite(0x31, "amqp:declare:list")
class Declare:
    """Asks a coordinator for a transaction; `global_id` names one of several resources."""

    global_id: Any_ | None = None


@composite(0x32, "amqp:discharge:list")
class Discharge:
    """Asks a coordinator to commit a transaction, or with `fail` to roll it back."""

    txn_id: Bin
    fail: Bool = False


@composite(0x33, "amqp:declared:list")
class Declared:
    """Outcome: the coordinator has declared a transaction."""

    txn_id: Bin


@composite(0x34, "amqp:transactional-state:list")
class TransactionalState:
    """Delivery state: part of a transaction, with the outcome that its commit makes true."""

    txn_id: Bin
    outcome: Any_ | None = None


@composite(0x40, "amqp:sasl-mechanisms:list")
class SaslMechanisms:
    """The mechanisms that a server takes."""

    sasl_server_mechanisms: Syms


@composite(0x41, "amqp:sasl-init:list")
class SaslInit:
    """The mechanism that a client has chosen."""

    mechanism: Sym
    initial_response: Bin | None = None
    hostname: Text | None = None


@composite(0x44, "amqp:sasl-outcome:list")
class SaslOutcome:
    """The result of the login: 0 ok, 1 wrong credentials, 2 to 4 a fault of the server."""

    code: U8
    additional_data: Bin | None = None


Outcome = Accepted | Rejected | Released | Modified
