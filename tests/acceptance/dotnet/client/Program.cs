// What docs/sdks.md says of this client; prints one JSON object a scenario: {"scenario", "ok", "detail"}.
//
//   Client CONNECTION_STRING QUEUE
//
// QUEUE and QUEUE-sessions, which requires sessions, have a lock duration of 5 s; QUEUE-once is another queue. All are empty.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Reflection;
using System.Text.Json;
using System.Text.RegularExpressions;
using System.Threading.Tasks;
using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;

var (connectionString, queue) = (args[0], args[1]);
var wrong = Regex.Replace(connectionString, "SharedAccessKey=[^;]*", "SharedAccessKey=wrong");
var patience = TimeSpan.FromSeconds(120);
var once = new ServiceBusClientOptions { RetryOptions = new() { MaxRetries = 0, TryTimeout = patience } };
await using var client = new ServiceBusClient(connectionString, once);

await Run("wrong_key", WrongKey);
await Run("wrong_key_without_retries", WrongKeyWithoutRetries);
await Run("wrong_key_administration", WrongKeyAdministration);
await Run("message_renewed_late", MessageRenewedLate);
await Run("session_renewed_late", SessionRenewedLate);
await Run("session_lock_lost", SessionLockLost);
await Run("prefetch_credit", PrefetchCredit);
await Run("batch_delete", BatchDelete);

// The client repeats what is unauthorized, whatever the service says: keys may be on their way to be changed.
async Task WrongKey()
{
    await using var other = new ServiceBusClient(wrong);
    await Refused<UnauthorizedAccessException>(() => other.CreateSender(queue).SendMessageAsync(new("x")));
}

async Task WrongKeyWithoutRetries()
{
    await using var other = new ServiceBusClient(wrong, once);
    await Refused<UnauthorizedAccessException>(() => other.CreateSender($"{queue}-once").SendMessageAsync(new("x")));
}

async Task WrongKeyAdministration() =>
    await Refused<UnauthorizedAccessException>(() => new ServiceBusAdministrationClient(wrong).GetQueueAsync($"{queue}-sessions"));

// Renewed in the last second of each lock, a message stays its receiver's.
async Task MessageRenewedLate()
{
    await client.CreateSender(queue).SendMessageAsync(new("late"));
    var receiver = client.CreateReceiver(queue);
    var message = await receiver.ReceiveMessageAsync(patience);
    for (var each = 0; each < 3; each++)
    {
        await UntilTheLastSecond(message.LockedUntil);
        await receiver.RenewMessageLockAsync(message);
    }
    await receiver.CompleteMessageAsync(message);
}

// So does a session, with the link: what is completed long after the first lock's end is completed.
async Task SessionRenewedLate()
{
    await Send("late", "a", "b");
    await using var receiver = await client.AcceptSessionAsync($"{queue}-sessions", "late");
    var message = await receiver.ReceiveMessageAsync(patience);
    for (var each = 0; each < 3; each++)
    {
        await UntilTheLastSecond(receiver.SessionLockedUntil);
        await receiver.RenewSessionLockAsync();
    }
    await receiver.CompleteMessageAsync(message);
    Equal("b", (await receiver.ReceiveMessageAsync(patience)).Body.ToString());
}

// It tells of a lock that has ended in other words than in SessionLockLost.
async Task SessionLockLost()
{
    await Send("lost", "a");
    await using var receiver = await client.AcceptSessionAsync($"{queue}-sessions", "lost");
    var message = await receiver.ReceiveMessageAsync(patience);
    await Task.Delay(TimeSpan.FromSeconds(8));
    await Refused<ObjectDisposedException>(() => receiver.CompleteMessageAsync(message));
    await Refused<ObjectDisposedException>(() => receiver.RenewSessionLockAsync());
    await Refused<ObjectDisposedException>(() => receiver.ReceiveMessageAsync(TimeSpan.FromSeconds(1)));
}

// With as many prefetched as the credit, all unsettled, there is nothing more to receive until they are settled.
async Task PrefetchCredit()
{
    var sender = client.CreateSender($"{queue}-once");
    for (var each = 0; each < 8; each++) await sender.SendMessageAsync(new($"{each}"));
    await using var receiver = client.CreateReceiver(
        $"{queue}-once", new ServiceBusReceiverOptions { PrefetchCount = 4 });
    var messages = new List<ServiceBusReceivedMessage>();
    while (messages.Count < 4) messages.Add(await receiver.ReceiveMessageAsync(patience));
    Equal(null, await receiver.ReceiveMessageAsync(TimeSpan.FromSeconds(2)));
    await Task.WhenAll(messages.Select(each => receiver.CompleteMessageAsync(each)));
    Equal("4", (await receiver.ReceiveMessageAsync(patience)).Body.ToString());
}

Task BatchDelete()
{
    var kinds = BindingFlags.Instance | BindingFlags.Public | BindingFlags.NonPublic;
    var found = typeof(ServiceBusReceiver).GetMethods(kinds)
        .Where(each => each.Name is "DeleteMessagesAsync" or "PurgeMessagesAsync").ToArray();
    Equal("DeleteMessagesAsync PurgeMessagesAsync", string.Join(' ', found.Select(each => each.Name).Order()));
    Equal(true, found.All(each => each.IsAssembly));
    return Task.CompletedTask;
}

async Task Send(string sessionId, params string[] bodies)
{
    var sender = client.CreateSender($"{queue}-sessions");
    foreach (var body in bodies) await sender.SendMessageAsync(new(body) { SessionId = sessionId });
}

static Task UntilTheLastSecond(DateTimeOffset end) =>
    Task.Delay(end - DateTimeOffset.UtcNow - TimeSpan.FromSeconds(1));

static async Task Refused<T>(Func<Task> action) where T : Exception
{
    try { await action(); }
    catch (T) { return; }
    throw new Exception("it was not refused");
}

static void Equal<T>(T expected, T actual)
{
    if (!EqualityComparer<T>.Default.Equals(expected, actual))
        throw new Exception($"expected {expected}, not {actual}");
}

static async Task Run(string scenario, Func<Task> body)
{
    var detail = "";
    try { await body(); } catch (Exception error) { detail = error.ToString(); }
    Console.WriteLine(JsonSerializer.Serialize(new { scenario, ok = detail == "", detail }));
}
