"""What is read of the definitions is what RabbitMQ has, and every follower is told of it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from typing import cast

import pytest

from bridge.broker.management.api import Management
from bridge.broker.management.json_answers import rows
from bridge.broker.management.listing import Listing, Row
from bridge.engine.administration.directory import Directory
from bridge.model import entity as model
from bridge.topology import definitions
from bridge.topology.entity_table import Changes
from bridge.topology.resources import Value

VHOST = "/"


class RabbitMQ:
    """RabbitMQ's global parameters, behind a management API whose answers may be late."""

    def __init__(self) -> None:
        self.vhost = VHOST
        self.late = asyncio.Event()
        self.late.set()
        self._forms: dict[str, Value] = {}

    def put(self, entity: model.Entity) -> None:
        """Write a definition."""
        self._forms[definitions.parameter_name(VHOST, entity.path)] = definitions.to_json(entity)

    def delete(self, path: str) -> None:
        """Delete a definition."""
        del self._forms[definitions.parameter_name(VHOST, path)]

    async def global_parameters_unless(self, digest: bytes) -> Listing | None:
        """Answer with what is there when it is asked; the answer arrives once it is not late."""
        text = json.dumps([{"name": name, "value": form} for name, form in self._forms.items()])
        now = hashlib.sha256(text.encode()).digest()
        listing = Listing(now, [Row(*each) for each in rows(text)])
        await self.late.wait()
        return None if now == digest else listing

    async def global_parameter(self, name: str) -> Value:
        """Answer with one parameter."""
        return self._forms.get(name)


def directory_of(rabbitmq: RabbitMQ) -> Directory:
    """Return a directory of what RabbitMQ has."""
    return Directory(cast(Management, rabbitmq))


async def test_a_follower_that_fails_keeps_no_other_one_from_a_change_and_gets_it_again() -> None:
    """With all that came later; until then the failure is known."""
    rabbitmq = RabbitMQ()
    directory = directory_of(rabbitmq)
    followed: dict[str, model.Entity] = {}
    others: list[Mapping[str, model.Entity]] = []
    is_able = False

    def follow(changes: Changes) -> None:
        if not is_able:
            raise ZeroDivisionError("unable")
        for path in changes.before:
            followed.pop(path, None)
        followed.update(changes.after)

    directory.follow(follow)
    directory.follow(lambda changes: others.append(changes.after))
    orders, bills = model.Queue(name="orders"), model.Queue(name="bills")
    rabbitmq.put(orders)
    rabbitmq.put(bills)
    await directory.read()
    rabbitmq.delete("orders")
    await directory.read()
    assert [sorted(each) for each in others] == [["bills", "orders"], []]
    assert isinstance(directory.failure, ZeroDivisionError)

    is_able = True
    directory.take()
    assert followed == {"bills": bills}
    assert directory.failure is None
    directory.take()
    assert len(others) == 2


async def test_a_read_that_another_one_overtakes_is_made_again_where_both_differ() -> None:
    """Two reads of all: the first finds a change, the second that it was taken back."""
    rabbitmq = RabbitMQ()
    directory = directory_of(rabbitmq)
    before, after = (model.Queue(name="orders", max_delivery_count=count) for count in (3, 9))
    rabbitmq.put(before)
    rabbitmq.put(model.Queue(name="other"))
    await directory.read()

    rabbitmq.late.clear()
    rabbitmq.put(after)
    first = asyncio.create_task(directory.fetch())
    await asyncio.sleep(0)
    rabbitmq.put(before)
    rabbitmq.put(model.Queue(name="other", max_delivery_count=7))
    second = asyncio.create_task(directory.fetch())
    await asyncio.sleep(0)
    rabbitmq.late.set()
    await asyncio.gather(first, second)
    await directory.fetch()
    assert directory.known("orders") == before


@pytest.mark.parametrize("kind", [model.Queue, model.Topic])
async def test_an_entity_of_another_kind_is_another_entity(kind: type[model.SendEntity]) -> None:
    """Between two reads it was deleted and made again: the earlier one is no more."""
    rabbitmq = RabbitMQ()
    directory = directory_of(rabbitmq)
    found: list[Changes] = []
    directory.follow(found.append)
    (other,) = {model.Queue, model.Topic} - {kind}
    rabbitmq.put(kind(name="orders"))
    await directory.read()
    rabbitmq.put(other(name="orders"))
    await directory.read()
    rabbitmq.put(other(name="orders", user_metadata="new"))
    await directory.read()
    assert [each.gone for each in found] == [set(), {"orders"}, set()]
