// Each verb once, so that a server can see what this client writes.
//
//   Wire CONNECTION_STRING
//
// The entity of each part is its own: "send", "lock", "delete", "named", "next", "manage".
using System;
using System.Threading.Tasks;
using Azure.Messaging.ServiceBus;

var retries = new ServiceBusRetryOptions { MaxRetries = 0, TryTimeout = TimeSpan.FromSeconds(60) };
await using var client = new ServiceBusClient(args[0], new ServiceBusClientOptions { RetryOptions = retries });
var soon = TimeSpan.FromMilliseconds(100);

await using var sender = client.CreateSender("send");
await sender.SendMessageAsync(Message("0"));
await sender.SendMessagesAsync(new[] { Message("1"), Message("2") });

await using var locking = client.CreateReceiver("lock");
await locking.ReceiveMessageAsync(soon);
var deleting = new ServiceBusReceiverOptions { ReceiveMode = ServiceBusReceiveMode.ReceiveAndDelete };
await using var receiver = client.CreateReceiver("delete", deleting);
await receiver.ReceiveMessageAsync(soon);

await using (var named = await client.AcceptSessionAsync("named", "A"))
{
    await named.GetSessionStateAsync();
    await named.RenewSessionLockAsync();
}
await using (var next = await client.AcceptNextSessionAsync("next")) { }

await using var looking = client.CreateReceiver("manage");
await looking.PeekMessagesAsync(3, 5);
await using var scheduling = client.CreateSender("manage");
await scheduling.ScheduleMessageAsync(Message("3"), new DateTimeOffset(2040, 1, 1, 0, 0, 0, TimeSpan.Zero));
await scheduling.CancelScheduledMessageAsync(7);

static ServiceBusMessage Message(string number) => new("m") { MessageId = number, SessionId = "S" };
