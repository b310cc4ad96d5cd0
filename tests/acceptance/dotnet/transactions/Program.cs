// Transactions of the unmodified .NET client; prints one JSON object a scenario: {"scenario", "ok", "detail"}.
//
//   Transactions CONNECTION_STRING QUEUE
//
// QUEUE, QUEUE-other and QUEUE-sessions, which requires sessions, have a lock duration of a minute. All are empty.
using System;
using System.Collections.Generic;
using System.Text.Json;
using System.Threading.Tasks;
using System.Transactions;
using Azure.Messaging.ServiceBus;

var (connectionString, queue) = (args[0], args[1]);
var other = $"{queue}-other";
var patience = TimeSpan.FromSeconds(120);
var once = new ServiceBusClientOptions { RetryOptions = new() { MaxRetries = 0, TryTimeout = patience } };
await using var client = new ServiceBusClient(connectionString, once);
await using var crossing = new ServiceBusClient(
    connectionString, new ServiceBusClientOptions { EnableCrossEntityTransactions = true, RetryOptions = once.RetryOptions });

await Run("commit", Commit);
await Run("rollback_then_abandon", RollbackThenAbandon);
await Run("every_settlement", EverySettlement);
await Run("deferred", Deferred);
await Run("cancel", Cancel);
await Run("session", Session);
await Run("session_state", SessionState);
await Run("session_lost", SessionLost);
await Run("another_client", AnotherClient);
await Run("schedule", Schedule);
await Run("other_entity_refused", OtherEntityRefused);
await Run("across_entities", AcrossEntities);
await Run("receiver_across_refused", ReceiverAcrossRefused);

async Task Commit()
{
    await Send("order");
    await using var sender = client.CreateSender(queue);
    await using var receiver = client.CreateReceiver(queue);
    var message = await receiver.ReceiveMessageAsync(patience);
    await InTransaction(async () =>
    {
        await receiver.CompleteMessageAsync(message);
        await sender.SendMessageAsync(new("answer"));
        await receiver.RenewMessageLockAsync(message);
    });
    await ExpectOnly(queue, "answer");
}

// As the client's own processor does: it abandons right behind the end of the scope.
async Task RollbackThenAbandon()
{
    await Send("order");
    await using var sender = client.CreateSender(queue);
    await using var receiver = client.CreateReceiver(queue);
    var message = await receiver.ReceiveMessageAsync(patience);
    using (new TransactionScope(TransactionScopeAsyncFlowOption.Enabled))
    {
        await receiver.CompleteMessageAsync(message);
        await sender.SendMessageAsync(new("never"));
    }
    for (var tries = 0; ; tries++)
    {
        // The client lets its transaction end in the background: until then the lock is the transaction's.
        try { await receiver.AbandonMessageAsync(message); break; }
        catch (ServiceBusException error) when (tries < 20 && error.Reason == ServiceBusFailureReason.MessageLockLost)
        {
            await Task.Delay(100);
        }
    }
    var again = await receiver.ReceiveMessageAsync(patience);
    Equal("order", again.Body.ToString());
    Equal(2, again.DeliveryCount);
    await receiver.CompleteMessageAsync(again);
    await ExpectOnly(queue);
}

async Task EverySettlement()
{
    await Send("abandoned", "buried", "deferred");
    await using var receiver = client.CreateReceiver(queue);
    var messages = new List<ServiceBusReceivedMessage>();
    while (messages.Count < 3) messages.AddRange(await receiver.ReceiveMessagesAsync(3 - messages.Count, patience));
    await InTransaction(async () =>
    {
        await receiver.AbandonMessageAsync(messages[0], new Dictionary<string, object> { ["tried"] = 1 });
        await receiver.DeadLetterMessageAsync(messages[1], "why", "because");
        await receiver.DeferMessageAsync(messages[2]);
    });
    var again = await receiver.ReceiveMessageAsync(patience);
    Equal("abandoned", again.Body.ToString());
    Equal(1, again.ApplicationProperties["tried"]);
    await receiver.CompleteMessageAsync(again);
    await using var dead = client.CreateReceiver(queue, new ServiceBusReceiverOptions { SubQueue = SubQueue.DeadLetter });
    var buried = await dead.ReceiveMessageAsync(patience);
    Equal("why", buried.DeadLetterReason);
    await InTransaction(() => dead.CompleteMessageAsync(buried));
    await receiver.CompleteMessageAsync(await receiver.ReceiveDeferredMessageAsync(messages[2].SequenceNumber));
    await ExpectOnly(queue);
}

async Task Deferred()
{
    await Send("order");
    await using var sender = client.CreateSender(queue);
    await using var receiver = client.CreateReceiver(queue);
    var message = await receiver.ReceiveMessageAsync(patience);
    await receiver.DeferMessageAsync(message);
    var deferred = await receiver.ReceiveDeferredMessageAsync(message.SequenceNumber);
    await InTransaction(async () =>
    {
        await receiver.CompleteMessageAsync(deferred);
        await sender.SendMessageAsync(new("answer"));
    });
    await ExpectOnly(queue, "answer");
    await Refused<ServiceBusException>(() => receiver.ReceiveDeferredMessageAsync(message.SequenceNumber));
}

async Task Cancel()
{
    await using var sender = client.CreateSender(queue);
    var number = await sender.ScheduleMessageAsync(new("later"), DateTimeOffset.UtcNow.AddHours(1));
    using (new TransactionScope(TransactionScopeAsyncFlowOption.Enabled)) await sender.CancelScheduledMessageAsync(number);
    await using var receiver = client.CreateReceiver(queue);
    Equal(number, (await receiver.PeekMessageAsync()).SequenceNumber);
    await InTransaction(() => sender.CancelScheduledMessageAsync(number));
    Equal(null, await receiver.PeekMessageAsync());
}

async Task Session()
{
    var name = $"{queue}-sessions";
    await using var sender = client.CreateSender(name);
    await sender.SendMessageAsync(new("order") { SessionId = "s" });
    await using var receiver = await client.AcceptNextSessionAsync(name);
    var message = await receiver.ReceiveMessageAsync(patience);
    await InTransaction(async () =>
    {
        await receiver.CompleteMessageAsync(message);
        await sender.SendMessageAsync(new("answer") { SessionId = "s" });
        await receiver.RenewSessionLockAsync();
    });
    var answer = await receiver.ReceiveMessageAsync(patience);
    Equal("answer", answer.Body.ToString());
    await receiver.CompleteMessageAsync(answer);
}

// The transaction reads what it has set; after a rollback the state is as it was.
async Task SessionState()
{
    var name = $"{queue}-sessions";
    await using var receiver = await client.AcceptSessionAsync(name, "state");
    await using var sender = client.CreateSender(name);
    await InTransaction(async () =>
    {
        await receiver.SetSessionStateAsync(new("first"));
        Equal("first", (await receiver.GetSessionStateAsync()).ToString());
        await sender.SendMessageAsync(new("order") { SessionId = "state" });
        await receiver.SetSessionStateAsync(new("second"));
    });
    Equal("second", (await receiver.GetSessionStateAsync()).ToString());
    var message = await receiver.ReceiveMessageAsync(patience);
    using (new TransactionScope(TransactionScopeAsyncFlowOption.Enabled))
    {
        await receiver.SetSessionStateAsync(new("never"));
    }
    await receiver.SetSessionStateAsync(new("third"));
    Equal("third", (await receiver.GetSessionStateAsync()).ToString());
    await InTransaction(async () =>
    {
        await receiver.CompleteMessageAsync(message);
        await receiver.SetSessionStateAsync(null);
    });
    Equal(null, await receiver.GetSessionStateAsync());
    Equal(null, (await receiver.ReceiveMessageAsync(TimeSpan.FromSeconds(1)))?.Body.ToString());
}

async Task SessionLost()
{
    var name = $"{queue}-sessions";
    var receiver = await client.AcceptSessionAsync(name, "lost");
    await Refused<TransactionException>(() => InTransaction(async () =>
    {
        await receiver.SetSessionStateAsync(new("never"));
        await receiver.DisposeAsync();
    }));
    for (var tries = 0; ; tries++)
    {
        // As in RollbackThenAbandon: until the transaction has ended the session is its.
        try { receiver = await client.AcceptSessionAsync(name, "lost"); break; }
        catch (ServiceBusException error) when (tries < 50 && error.Reason == ServiceBusFailureReason.SessionCannotBeLocked)
        {
            await Task.Delay(100);
        }
    }
    Equal(null, await receiver.GetSessionStateAsync());
    await receiver.DisposeAsync();
}

// Each client has its own transaction of the scope: the second one cannot be part of the first's.
async Task AnotherClient()
{
    await using var another = new ServiceBusClient(connectionString, once);
    await using var sender = client.CreateSender(queue);
    await using var apart = another.CreateSender(queue);
    await Refused<Exception>(() => InTransaction(async () =>
    {
        await sender.SendMessageAsync(new("never"));
        await apart.SendMessageAsync(new("never"));
    }));
    await ExpectOnly(queue);
}

async Task Schedule()
{
    await using var sender = client.CreateSender(queue);
    await using var receiver = client.CreateReceiver(queue);
    var later = DateTimeOffset.UtcNow.AddHours(1);
    using (new TransactionScope(TransactionScopeAsyncFlowOption.Enabled)) await sender.ScheduleMessageAsync(new("never"), later);
    Equal(null, await receiver.PeekMessageAsync());
    long number = 0;
    await InTransaction(async () => number = await sender.ScheduleMessageAsync(new("later"), later));
    Equal(number, (await receiver.PeekMessageAsync()).SequenceNumber);
    await sender.CancelScheduledMessageAsync(number);
    await using var apart = client.CreateReceiver(queue);
    Equal(null, await apart.PeekMessageAsync());
}

async Task OtherEntityRefused()
{
    await using var sender = client.CreateSender(queue);
    await using var apart = client.CreateSender(other);
    await Refused<Exception>(() => InTransaction(async () =>
    {
        await sender.SendMessageAsync(new("never"));
        await apart.SendMessageAsync(new("never"));
    }));
    await ExpectOnly(queue);
    await ExpectOnly(other);
}

async Task AcrossEntities()
{
    await Send("order");
    await using var receiver = crossing.CreateReceiver(queue);
    var message = await receiver.ReceiveMessageAsync(patience);
    await using var sender = crossing.CreateSender(other);
    await InTransaction(async () =>
    {
        await sender.SendMessageAsync(new("answer"));
        await receiver.CompleteMessageAsync(message);
    });
    await ExpectOnly(other, "answer");
    await ExpectOnly(queue);
}

async Task ReceiverAcrossRefused()
{
    await using var receiver = crossing.CreateReceiver(other);
    await Refused<InvalidOperationException>(() => receiver.ReceiveMessageAsync(TimeSpan.FromSeconds(1)));
}

async Task Send(params string[] bodies)
{
    await using var sender = client.CreateSender(queue);
    foreach (var body in bodies) await sender.SendMessageAsync(new(body));
}

async Task ExpectOnly(string name, params string[] bodies)
{
    await using var apart = new ServiceBusClient(connectionString, once);
    await using var receiver = apart.CreateReceiver(name);
    foreach (var body in bodies)
    {
        var message = await receiver.ReceiveMessageAsync(patience);
        Equal(body, message?.Body.ToString());
        await receiver.CompleteMessageAsync(message);
    }
    Equal(null, (await receiver.ReceiveMessageAsync(TimeSpan.FromSeconds(1)))?.Body.ToString());
}

static async Task InTransaction(Func<Task> work)
{
    using var scope = new TransactionScope(TransactionScopeAsyncFlowOption.Enabled);
    await work();
    scope.Complete();
}

static async Task Refused<T>(Func<Task> work) where T : Exception
{
    try { await work(); } catch (T) { return; }
    throw new InvalidOperationException($"no {typeof(T).Name}");
}

static void Equal(object? expected, object? found)
{
    if (!Equals(expected, found)) throw new InvalidOperationException($"'{found}', not '{expected}'");
}

static async Task Run(string scenario, Func<Task> body)
{
    var detail = "";
    try { await body(); } catch (Exception error) { detail = error.ToString(); }
    Console.WriteLine(JsonSerializer.Serialize(new { scenario, ok = detail == "", detail }));
}
