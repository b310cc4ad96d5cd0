"""What is asked of a namespace for a list of its entities."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from bridge.commands.entity_listing import listed
from bridge.commands.output import Progress
from bridge.remote.address import RemoteAddress
from bridge.remote.administration import RemoteAdministration
from bridge.remote.credentials import SharedKey

SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
QUEUES = [f"q{number:03}" for number in range(250)]
TOPICS = {"events": ["audit", "mail"], "jobs": ["all"]}


def feed(kind: str, names: list[str], path: str, skip: int, top: int) -> Iterator[str]:
    """Yield the parts of a page of a list."""
    yield '<feed xmlns="http://www.w3.org/2005/Atom">'
    for name in names[skip : skip + top]:
        yield (
            f'<entry><title>{name}</title><content><{kind}Description xmlns="{SERVICE_BUS}"/>'
            "</content></entry>"
        )
    if skip + top < len(names):
        yield f'<link rel="next" href="http://x/{path}?$skip={skip + top}&amp;$top={top}"/>'
    yield "</feed>"


@asynccontextmanager
async def namespace(asked_for: list[str]) -> AsyncIterator[RemoteAdministration]:
    """A namespace with these entities; `asked_for` gets the path of each request."""

    async def answer(request: web.Request) -> web.StreamResponse:
        asked_for.append(request.path)
        skip, top = int(request.query["$skip"]), int(request.query["$top"])
        match request.path.strip("/").split("/"):
            case ["$Resources", "Queues"]:
                kind, names = "Queue", QUEUES
            case ["$Resources", "Topics"]:
                kind, names = "Topic", list(TOPICS)
            case [topic, "Subscriptions"]:
                kind, names = "Subscription", TOPICS[topic]
            case _:
                raise web.HTTPNotFound
        text = "".join(feed(kind, names, request.path, skip, top))
        return web.Response(text=text, content_type="application/xml")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    address = RemoteAddress.of(
        f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=a;SharedAccessKey=b;"
        "UseDevelopmentEmulator=true;"
    )
    try:
        async with RemoteAdministration(address, SharedKey("a", "b")) as administration:
            yield administration
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("patterns", "count", "below"),
    [
        (["*"], 255, ["events", "jobs"]),
        (["Q00*", "jobs"], 11, []),
        (["events*"], 3, ["events"]),
        (["events/Subscriptions/mail"], 1, ["events"]),
        (["*/MAIL"], 1, ["events", "jobs"]),
        (["e*", "j[o]bs/*"], 4, ["events", "jobs"]),
        ([], 0, []),
    ],
)
async def test_a_list_is_a_page_for_each_hundred_and_topics_alone_that_a_pattern_may_match(
    patterns: list[str], count: int, below: list[str]
) -> None:
    """250 queues are three pages; the subscriptions of a topic are a page of their own."""
    asked_for: list[str] = []
    async with namespace(asked_for) as administration:
        progress = Progress(None)
        found = await listed(administration, patterns, progress)
    assert len(found) == count
    paths = [each.entity.path for each in found]
    assert paths == sorted(paths, key=str.lower)
    assert len(paths) == len(set(paths))
    assert asked_for[:4] == ["/$Resources/Queues"] * 3 + ["/$Resources/Topics"]
    assert sorted(asked_for[4:]) == [f"/{topic}/Subscriptions" for topic in below]
    times = {each.entity.path: each.at_s for each in found}
    if len(times) == 255:
        assert times["q000"] < times["q249"] < times["events"] < times["jobs/Subscriptions/all"]
