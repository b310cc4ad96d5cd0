"""A running broker, read as a whole and changed object by object: by HTTP, or by `rabbitmqctl`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from bridge.broker.errors import BrokerError
from bridge.broker.management import json_answers
from bridge.broker.management.api import Management
from bridge.topology.resources import Binding, Value

TIMEOUT_S = 120.0
"""`rabbitmqctl` starts an Erlang node of its own; on a loaded machine that takes seconds."""


class CommandFailed(BrokerError):
    """`rabbitmqctl` is not there, did not end in time, or failed; `str()` has its words."""

    is_retryable = False


class HttpBroker(Management):
    """A broker through its management API."""

    async def version(self) -> str:
        """Return RabbitMQ's version."""
        return str((await self.overview())["rabbitmq_version"])

    async def messages(self) -> Mapping[str, int]:
        """Return the number of messages in each queue, seconds old; a new queue has none yet."""
        rows = await self.queues(columns=("name", "messages"))
        return {row["name"]: row["messages"] for row in rows if "messages" in row}

    async def delete_shovel(self, name: str) -> None:
        """Delete a shovel; a missing one is no error."""
        path = "parameters", "shovel", self.vhost, name
        await self._http.request("DELETE", *path, absent=None)

    async def delete_exchange(self, name: str) -> None:
        """Delete an exchange with its bindings; a missing exchange is no error."""
        await self._http.request("DELETE", "exchanges", self.vhost, name, absent=None)

    async def delete_binding(self, binding: Binding) -> None:
        """Delete a binding; a missing one is no error."""
        kind = "e" if binding.to_exchange else "q"
        path = ("bindings", self.vhost, "e", binding.source, kind, binding.destination)
        rows = await self._http.request("GET", *path, absent=None)
        for row in rows or ():
            is_this = row["routing_key"] == binding.routing_key
            if is_this and dict(row["arguments"] or {}) == binding.arguments:
                await self._http.request("DELETE", *path, row["properties_key"], absent=None)

    async def announce(self, exchange: str) -> None:
        """Publish an empty message to an exchange whose messages bridges consume."""
        message = {"properties": {}, "routing_key": "", "payload": "", "payload_encoding": "string"}
        path = "exchanges", self.vhost, exchange, "publish"
        await self._http.request("POST", *path, body=message, absent=None)


class ConsoleBroker:
    """A broker through `rabbitmqctl` on its own host."""

    def __init__(self, vhost: str, program: Sequence[str] = ("rabbitmqctl",)) -> None:
        """Keep the virtual host and the command: the program and its first arguments (`--node`)."""
        self.vhost = vhost
        self._program = tuple(program)

    async def close(self) -> None:
        """Do nothing: no connection is kept open."""

    async def version(self) -> str:
        """Return RabbitMQ's version."""
        return (await self._eval("rabbit_misc:version().")).strip('"')

    async def definitions(self) -> Mapping[str, Any]:
        """Return the definitions of the whole broker."""
        text = await self._call("export_definitions", "-", "--format", "json")
        start = text.find("{")
        found: Mapping[str, Any] = json_answers.read(text[start:])
        return found

    async def messages(self) -> Mapping[str, int]:
        """Return the number of messages in each queue."""
        text = await self._call(
            *("--vhost", self.vhost, "list_queues", "name", "messages", "--formatter", "json")
        )
        rows = json_answers.read(text[text.find("[") :])
        return {row["name"]: int(row["messages"]) for row in rows if row["messages"] != ""}

    async def import_definitions(self, definitions: Mapping[str, Any]) -> None:
        """Import a definitions document: declare its objects, set its policies and parameters.

        Existing queues, exchanges and bindings stay as they are.

        The document goes through a file: from standard input 4.0 never returns, and as an argument
        access keys would show in a list of processes.
        """
        with tempfile.NamedTemporaryFile("w", prefix="busbridge-", suffix=".json") as file:
            json.dump(definitions, file)
            file.flush()
            # Called by root, the rabbitmqctl of Linux packages runs as the user rabbitmq.
            with contextlib.suppress(LookupError, PermissionError):
                shutil.chown(file.name, "rabbitmq")
            await self._call("import_definitions", file.name)

    async def delete_policy(self, name: str, *, operator: bool = False) -> None:
        """Delete a policy or operator policy."""
        verb = "clear_operator_policy" if operator else "clear_policy"
        await self._call("--vhost", self.vhost, verb, name)

    async def delete_global_parameter(self, name: str) -> None:
        """Delete a global parameter."""
        await self._call("clear_global_parameter", name)

    async def delete_shovel(self, name: str) -> None:
        """Delete a shovel."""
        await self._call("--vhost", self.vhost, "clear_parameter", "shovel", name)

    async def delete_queue(self, name: str) -> None:
        """Delete a queue with its messages."""
        await self._call("--vhost", self.vhost, "delete_queue", name)

    async def delete_exchange(self, name: str) -> None:
        """Delete an exchange with its bindings, by `eval`: `rabbitmqctl` has no command for it."""
        resource = self._resource("exchange", name)
        await self._eval(f'rabbit_exchange:delete({resource}, false, <<"busbridge">>).')

    async def delete_binding(self, binding: Binding) -> None:
        """Delete a binding, by `eval`: `rabbitmqctl` has no command for it."""
        source = self._resource("exchange", binding.source)
        kind = "exchange" if binding.to_exchange else "queue"
        destination = self._resource(kind, binding.destination)
        arguments = ", ".join(
            f"{{{_binary(key)}, {_typed(value)}}}" for key, value in binding.arguments.items()
        )
        term = (
            f"{{binding, {source}, {_binary(binding.routing_key)}, {destination}, [{arguments}]}}"
        )
        await self._eval(f'rabbit_binding:remove({term}, <<"busbridge">>).')

    async def announce(self, exchange: str) -> None:
        """Publish an empty message to an exchange whose messages bridges consume.

        `rabbitmqctl` has no command for a publish. Fails before 4.0, where no bridge runs.
        """
        await self._eval(
            f"X = {self._resource('exchange', exchange)}, "
            "Content = rabbit_basic:build_content(rabbit_basic:properties([]), <<>>), "
            "{ok, Message} = mc_amqpl:message(X, <<>>, Content), "
            "rabbit_queue_type:publish_at_most_once(X, Message)."
        )

    def _resource(self, kind: str, name: str) -> str:
        return f"{{resource, {_binary(self.vhost)}, {kind}, {_binary(name)}}}"

    async def _eval(self, expression: str) -> str:
        return (await self._call("eval", expression)).strip()

    async def _call(self, *arguments: str) -> str:
        words = [*self._program, "--quiet", *arguments]
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise CommandFailed(text=f"{self._program[0]} cannot be run: {error}") from error
        try:
            async with asyncio.timeout(TIMEOUT_S):
                output, errors = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise CommandFailed(
                text=f"{words[0]} {arguments[0]} did not end in {TIMEOUT_S} s"
            ) from None
        if process.returncode:
            said = (errors or output).decode(errors="replace").strip()
            raise CommandFailed(text=f"{words[0]} {' '.join(arguments[:3])}: {said[-500:]}")
        return output.decode()


LiveBroker = HttpBroker | ConsoleBroker
"""The broker of `busbridge policies`; each call raises a BrokerError on failure."""


def _binary(text: str) -> str:
    """Return the Erlang source of a binary with the text's bytes."""
    return "<<" + ",".join(str(byte) for byte in text.encode()) + ">>"


def _typed(value: Value) -> str:
    """Return the Erlang type and value that RabbitMQ stores for a JSON argument."""
    match value:
        case bool():
            return f"bool, {'true' if value else 'false'}"
        case int():
            return f"long, {value}"
        case _:
            return f"longstr, {_binary(str(value))}"
