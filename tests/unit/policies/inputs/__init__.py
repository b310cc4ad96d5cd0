"""Inputs written anew in the shape of public ones; nothing here is fetched, nothing is copied.

| file | in the shape of |
|---|---|
| `queue.template.json` | Azure quickstart "servicebus-create-queue": a name without a default |
| `rules.template.json` | Azure quickstart "servicebus-create-topic-subscription-rule" |
| `authrule.template.json` | Azure quickstart "servicebus-create-authrule-namespace-and-queue" |
| `bicep.template.json` | what `bicep build` makes of a module with a loop over queues |
| `management.json` | recordings of the management API's `queues` and `topics` (REST) |
| `az.json` | `az servicebus queue list` and `topic list`, joined with `jq -s` |
| `Config.json` | the Service Bus emulator's own `Config.json` |
| `feeds.xml` | ATOM feeds of a live namespace as the SDKs' administration clients receive them |
| `state.json` | `terraform show -json` of a state with azurerm 3 |
| `explorer.xml` | an export of Service Bus Explorer |
| `masstransit.xml` | ATOM feeds of a namespace that MassTransit has filled, `~` in its names |
| `two.template.json` | an exported resource group with two namespaces |
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Input:
    """A file of this folder, and the options with which it is read.

    Attributes:
        queues: the queues that it defines, as they are spelled.
        subscriptions: the paths of its subscriptions.
    """

    name: str
    options: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    subscriptions: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """Where it is."""
        return str(FOLDER / self.name)


INPUTS = (
    Input("queue.template.json", ("--parameter", "namespaceName=shop"), ("orders",)),
    Input(
        "rules.template.json",
        ("--parameter", "namespaceName=shop"),
        (),
        ("Prices/Subscriptions/Discounts",),
    ),
    Input("authrule.template.json", ("--parameter", "namespaceName=shop"), ("Incoming",)),
    Input("bicep.template.json", (), ("jobs-eu", "jobs-us", "jobs-dead")),
    Input("management.json", (), ("invoices", "receipts"), ()),
    Input("az.json", (), ("mail", "mail-late"), ("news/Subscriptions/archive",)),
    Input("Config.json", (), ("queue.1",), ("topic.1/Subscriptions/subscription.1",)),
    Input("feeds.xml", (), ("work",), ("alerts/Subscriptions/pager",)),
    Input("state.json", (), ("payments",), ("ledger/Subscriptions/audit",)),
    Input("explorer.xml", (), ("tasks",), ("changes/Subscriptions/all",)),
    Input(
        "masstransit.xml",
        (),
        ("submit-order", "submit-order_error"),
        ("Contoso~Fault--Contoso~Order--/Subscriptions/submit-order",),
    ),
    Input("two.template.json", ("--namespace", "shop-eu"), ("parcels",)),
)
"""Every input that can be read whole."""
