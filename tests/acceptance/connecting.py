"""The snippets of docs/connecting.md, and the programs that they are run in."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.fixtures.bridge import Bridge

PAGE = Path(__file__).parents[2] / "docs" / "connecting.md"


def snippets() -> Mapping[tuple[str, str], str]:
    """Return the page's snippets, by language and way."""
    found = re.findall(r"^```(\w+) (\w+)\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return {(language, way): text for language, way, text in found}


def snippet(bridge: Bridge, language: str, way: str) -> str:
    """Return a snippet with the bridge's own port and CA in it."""
    text = snippets()[language, way].replace('"ca.pem"', f'"{bridge.ca}"')
    return re.sub(r"\b5672\b", str(bridge.port), text)


def without_flag(bridge: Bridge) -> str:
    """Return the connection string for TLS."""
    return bridge.connection_string.replace(";UseDevelopmentEmulator=true;", "")


def commands_to_trust(bridge: Bridge, sdk: str) -> list[str]:
    """Return the commands that `busbridge trust` prints for an SDK."""
    assert bridge.ca is not None
    said = subprocess.run(
        [sys.executable, "-m", "bridge.cli.main", "trust", "--data-dir", bridge.ca.parents[1]],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (paragraph,) = [part for part in said.split("\n\n") if part.split()[0] == sdk]
    return [line.strip() for line in paragraph.splitlines()[1:] if "#" not in line]


def variables_to_trust(bridge: Bridge, sdk: str) -> dict[str, str]:
    """Return the environment variables that those commands set."""
    exported = [each for each in commands_to_trust(bridge, sdk) if each.startswith("export ")]
    return dict(shlex.split(each)[1].split("=", 1) for each in exported)


def run(command: list[str], cwd: Path, *, within_s: float = 120, **environment: str) -> str:
    """Run a program; return what it prints."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    return done.stdout


PYTHON = """\
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.management import ServiceBusAdministrationClient

emulator_string = {emulator!r}
connection_string = {plain!r}
{snippet}
{rest}
"""

PYTHON_MESSAGES = """\
with client:
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("hello"))
    with client.get_queue_receiver("orders", max_wait_time=10) as receiver:
        for message in receiver.receive_messages():
            receiver.complete_message(message)
            print(message)
"""

PYTHON_ADMINISTRATION = """\
with admin:
    admin.create_queue("made", max_delivery_count=3)
    print("hello", [each.name for each in admin.list_queues()])
    admin.delete_queue("made")
"""

JAVASCRIPT = """\
import {{ ServiceBusAdministrationClient, ServiceBusClient }} from "@azure/service-bus";
import WebSocket from "ws";

const emulatorString = "{emulator}";
const connectionString = "{plain}";
{snippet}
{rest}
"""

JAVASCRIPT_MESSAGES = """\
await client.createSender("orders").sendMessages({ body: "hello" });
const receiver = client.createReceiver("orders");
for (const message of await receiver.receiveMessages(1, { maxWaitTimeInMs: 10000 })) {
  await receiver.completeMessage(message);
  console.log(message.body);
}
await client.close();
"""

JAVASCRIPT_ADMINISTRATION = """\
await admin.createQueue("made", { maxDeliveryCount: 3 });
const names = [];
for await (const queue of admin.listQueues()) names.push(queue.name);
console.log("hello", names);
await admin.deleteQueue("made");
"""


JAVA = """\
import com.azure.core.amqp.AmqpTransportType;
import com.azure.core.http.policy.PortPolicy;
import com.azure.messaging.servicebus.*;
import com.azure.messaging.servicebus.administration.*;
import java.time.Duration;

public class Connecting {{
    static String emulatorString = "{emulator}";
    static String connectionString = "{plain}";

    public static void main(String[] arguments) {{
        {snippet}
        {rest}
    }}
}}
"""

JAVA_MESSAGES = """\
try (ServiceBusSenderClient sender = builder.sender().queueName("orders").buildClient()) {
    sender.sendMessage(new ServiceBusMessage("hello"));
}
try (ServiceBusReceiverClient receiver = builder.receiver().queueName("orders").buildClient()) {
    for (ServiceBusReceivedMessage message : receiver.receiveMessages(1, Duration.ofSeconds(10))) {
        receiver.complete(message);
        System.out.println(message.getBody());
    }
}
"""

JAVA_ADMINISTRATION = """\
admin.createQueue("made");
System.out.println("hello " + admin.listQueues().stream().count());
admin.deleteQueue("made");
"""

GO = """\
package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

var _ = tls.Config{{}}
var _ admin.Client
var _ azservicebus.Client
var emulatorString = "{emulator}"
var connectionString = "{plain}"

func check(err error) {{
	if err != nil {{
		fmt.Println(err)
		os.Exit(1)
	}}
}}

func main() {{
	ctx := context.Background()
	{snippet}
	check(err)
	{rest}
}}
"""

GO_MESSAGES = """\
sender, err := client.NewSender("orders", nil)
check(err)
check(sender.SendMessage(ctx, &azservicebus.Message{Body: []byte("hello")}, nil))
receiver, err := client.NewReceiverForQueue("orders", nil)
check(err)
messages, err := receiver.ReceiveMessages(ctx, 1, nil)
check(err)
for _, message := range messages {
	check(receiver.CompleteMessage(ctx, message, nil))
	fmt.Println(string(message.Body))
}
check(client.Close(ctx))
"""

GO_ADMINISTRATION = """\
_, err = client.CreateQueue(ctx, "made", nil)
check(err)
page, err := client.NewListQueuesPager(nil).NextPage(ctx)
check(err)
fmt.Println("hello", len(page.Queues))
_, err = client.DeleteQueue(ctx, "made", nil)
check(err)
"""

CSHARP = """\
using System;
using System.Threading.Tasks;
using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;

string emulatorString = "{emulator}";
string connectionString = "{plain}";
{snippet}
{rest}
"""

CSHARP_MESSAGES = """\
await using (client)
{
    await client.CreateSender("orders").SendMessageAsync(new ServiceBusMessage("hello"));
    var receiver = client.CreateReceiver("orders");
    var message = await receiver.ReceiveMessageAsync(TimeSpan.FromSeconds(10));
    await receiver.CompleteMessageAsync(message);
    Console.WriteLine(message.Body.ToString());
}
"""

CSHARP_ADMINISTRATION = """\
await admin.CreateQueueAsync("made");
var names = "";
await foreach (var queue in admin.GetQueuesAsync()) names += " " + queue.Name;
Console.WriteLine("hello" + names);
await admin.DeleteQueueAsync("made");
"""


def program(bridge: Bridge, language: str, way: str) -> str:
    """Return a whole program around a snippet: it sends, receives and prints "hello"."""
    form, messages, administration = PROGRAMS[language]
    return form.format(
        emulator=bridge.connection_string,
        plain=without_flag(bridge),
        snippet=snippet(bridge, language, way),
        rest=administration if way == "administration" else messages,
    )


PROGRAMS = {
    "python": (PYTHON, PYTHON_MESSAGES, PYTHON_ADMINISTRATION),
    "javascript": (JAVASCRIPT, JAVASCRIPT_MESSAGES, JAVASCRIPT_ADMINISTRATION),
    "java": (JAVA, JAVA_MESSAGES, JAVA_ADMINISTRATION),
    "csharp": (CSHARP, CSHARP_MESSAGES, CSHARP_ADMINISTRATION),
    "go": (GO, GO_MESSAGES, GO_ADMINISTRATION),
}
