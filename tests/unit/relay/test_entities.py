"""What is asked of a namespace for the routes with a `*`."""

from __future__ import annotations

import pytest
from aiohttp import web

from bridge.relay.entities import sources_at
from tests.unit.relay.files import file_of, route
from tests.unit.remote.test_administration import served

BELOW = {
    "$Resources/Queues": "Queue orders",
    "$Resources/Topics": "Topic events,Topic Extra,Topic other",
    "events/Subscriptions": "Subscription audit",
    "Extra/Subscriptions": "Subscription audit",
    "other/Subscriptions": "Subscription audit",
}
SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"


@pytest.mark.parametrize(
    ("sources", "asked", "found"),
    [
        (["*"], ["$Resources/Queues"], ["orders"]),
        (["*/$DeadLetterQueue"], ["$Resources/Queues"], ["orders"]),
        (
            ["EVENTS/Subscriptions/*"],
            ["$Resources/Topics", "events/Subscriptions"],
            ["events/Subscriptions/audit"],
        ),
        (
            ["e*/subscriptions/audit/$DeadLetterQueue"],
            ["$Resources/Topics", "events/Subscriptions", "Extra/Subscriptions"],
            ["events/Subscriptions/audit", "Extra/Subscriptions/audit"],
        ),
        (
            ["o*", "other/Subscriptions/a*"],
            ["$Resources/Queues", "$Resources/Topics", "other/Subscriptions"],
            ["orders", "other/Subscriptions/audit"],
        ),
    ],
)
async def test_no_topic_is_asked_for_that_no_star_stands_for(
    sources: list[str], asked: list[str], found: list[str]
) -> None:
    """Each is a request, every 30 s."""
    patterns = file_of("".join(route(f"azure/{each}", "local/all") for each in sources)).patterns
    paths: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        path = request.path.strip("/")
        paths.append(path)
        entries = ""
        for each in BELOW[path].split(","):
            kind, name = each.split()
            entries += (
                f'<entry><title>{name}</title><content><{kind}Description xmlns="{SERVICE_BUS}"/>'
                "</content></entry>"
            )
        text = f'<feed xmlns="http://www.w3.org/2005/Atom">{entries}</feed>'
        return web.Response(text=text, content_type="application/xml")

    async with served(answer) as administration:
        assert await sources_at(administration, patterns["azure"]) == found
    assert paths == asked
