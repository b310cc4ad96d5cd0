// Scenarios of sessions; prints one JSON object a scenario: {"scenario", "ok", "detail"}.
//
//   Sessions CONNECTION_STRING QUEUE
//
// QUEUE requires sessions, has a lock duration of 5 s, and is empty.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;
using Azure.Messaging.ServiceBus;

var (connectionString, queue) = (args[0], args[1]);
var options = new ServiceBusClientOptions
{
    RetryOptions = new() { MaxRetries = 0, TryTimeout = TimeSpan.FromSeconds(20) },
};
var patience = TimeSpan.FromSeconds(120);
await using var client = new ServiceBusClient(connectionString, options);
await using var sender = client.CreateSender(queue);

await Run("case", Case);
await Run("processor_case", ProcessorCase);
await Run("locked_until", LockedUntil);

// Sent to "SessionId", accepted as "sessionId", as Azure's own live test has it.
async Task Case()
{
    await Send("SessionId", "a");
    await Send("sESSIONiD", "b");
    var receiver = await client.AcceptSessionAsync(queue, "sessionId");
    Equal("sessionId", receiver.SessionId);
    await Refused(ServiceBusFailureReason.SessionCannotBeLocked,
        () => client.AcceptSessionAsync(queue, "SESSIONID"));
    var peeked = await receiver.PeekMessagesAsync(2);
    Equal("SessionId sESSIONiD", string.Join(' ', peeked.Select(each => each.SessionId)));
    var messages = await Receive(receiver, 2);
    Equal("a b", string.Join(' ', messages.Select(each => each.Body.ToString())));
    Equal("SessionId sESSIONiD", string.Join(' ', messages.Select(each => each.SessionId)));
    await receiver.RenewSessionLockAsync();
    await receiver.SetSessionStateAsync(BinaryData.FromString("kept"));
    await receiver.DeferMessageAsync(messages[0]);
    await receiver.CompleteMessageAsync(messages[1]);
    await receiver.CloseAsync();

    await using var again = await client.AcceptSessionAsync(queue, "SESSIONID");
    Equal("kept", (await again.GetSessionStateAsync()).ToString());
    var deferred = await again.ReceiveDeferredMessageAsync(messages[0].SequenceNumber);
    Equal("SessionId", deferred.SessionId);
    await again.CompleteMessageAsync(deferred);
    await again.SetSessionStateAsync(null);
}

// A processor of one session has all of its messages, however they are spelt.
async Task ProcessorCase()
{
    await Send("Processed", "a");
    await Send("pROCESSED", "b");
    var found = new List<string>();
    var all = new TaskCompletionSource();
    await using var processor = client.CreateSessionProcessor(queue, new ServiceBusSessionProcessorOptions
    {
        SessionIds = { "PROCESSED" }, MaxConcurrentCallsPerSession = 1,
    });
    processor.ProcessMessageAsync += async each =>
    {
        await each.CompleteMessageAsync(each.Message);
        found.Add($"{each.Message.Body} of {each.Message.SessionId}");
        if (found.Count == 2) all.TrySetResult();
    };
    processor.ProcessErrorAsync += _ => Task.CompletedTask;
    await processor.StartProcessingAsync();
    await all.Task.WaitAsync(patience);
    await processor.StopProcessingAsync();
    Equal("a of Processed|b of pROCESSED", string.Join('|', found));
}

// A message of a session has no lock of its own: a handler that completes a deferred message late, under its
// session's renewed lock, does not end the session.
async Task LockedUntil()
{
    await Send("locked", "deferred");
    await Send("locked", "last");
    var found = new List<string>();
    var all = new TaskCompletionSource();
    await using var processor = client.CreateSessionProcessor(queue, new ServiceBusSessionProcessorOptions
    {
        SessionIds = { "locked" }, AutoCompleteMessages = false,
    });
    processor.ProcessMessageAsync += async each =>
    {
        if (each.Message.Body.ToString() == "deferred")
        {
            Equal(DateTimeOffset.MaxValue, each.Message.LockedUntil);
            await each.DeferMessageAsync(each.Message);
            var deferred = await each.GetReceiveActions()
                .ReceiveDeferredMessagesAsync(new[] { each.Message.SequenceNumber });
            Equal(DateTimeOffset.MaxValue, deferred[0].LockedUntil);
            await Task.Delay(TimeSpan.FromSeconds(7));
            await each.CompleteMessageAsync(deferred[0]);
        }
        else await each.CompleteMessageAsync(each.Message);
        found.Add(each.Message.Body.ToString());
        if (found.Count == 2) all.TrySetResult();
    };
    processor.ProcessErrorAsync += each =>
    {
        all.TrySetException(each.Exception);
        return Task.CompletedTask;
    };
    await processor.StartProcessingAsync();
    await all.Task.WaitAsync(patience);
    await processor.StopProcessingAsync();
    Equal("deferred last", string.Join(' ', found));
}

Task Send(string sessionId, string body) =>
    sender.SendMessageAsync(new ServiceBusMessage(body) { SessionId = sessionId });

async Task<List<ServiceBusReceivedMessage>> Receive(ServiceBusReceiver receiver, int count)
{
    var messages = new List<ServiceBusReceivedMessage>();
    using var end = new CancellationTokenSource(patience);
    while (messages.Count < count)
        messages.AddRange(await receiver.ReceiveMessagesAsync(
            count - messages.Count, TimeSpan.FromSeconds(5), end.Token));
    return messages;
}

static async Task Refused(ServiceBusFailureReason reason, Func<Task> action)
{
    try { await action(); }
    catch (ServiceBusException error) when (error.Reason == reason) { return; }
    throw new Exception($"not refused: {reason}");
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
