// A client at ordinary work: it settles in every way and prints what it does and sees, a line each.
//
//   Accounting KIND CONNECTION_STRING PLACE
//
// KIND is processor (with a handler that throws), prefetching (the same with prefetched messages),
// batch, or sessions (a session processor). Ends when its input does. This client shows the
// delivery count of the wire plus one.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Text;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;
using Azure.Messaging.ServiceBus;

var (kind, connectionString, place) = (args[0], args[1], args[2]);
var ending = new CancellationTokenSource();
_ = Task.Run(() => { while (Console.In.Read() >= 0) { } ending.Cancel(); });
await using var client = new ServiceBusClient(connectionString);
var parts = place.Split("/subscriptions/");

switch (kind)
{
    case "sessions": await Sessions(); break;
    case "batch": await Batches(); break;
    default: await Processor(kind == "prefetching" ? 200 : 0); break;
}

async Task UntilTheEnd()
{
    try { await Task.Delay(Timeout.Infinite, ending.Token); } catch (OperationCanceledException) { }
}

async Task Processor(int prefetch)
{
    var options = new ServiceBusProcessorOptions
    {
        AutoCompleteMessages = false, MaxConcurrentCalls = 20, PrefetchCount = prefetch,
    };
    await using var processor = parts.Length > 1
        ? client.CreateProcessor(parts[0], parts[1], options) : client.CreateProcessor(place, options);
    processor.ProcessMessageAsync += each => OnMessage(each.Message, false, fate => fate switch
    {
        "abandon" => each.AbandonMessageAsync(each.Message),
        "dead" => each.DeadLetterMessageAsync(each.Message),
        "defer" => each.DeferMessageAsync(each.Message),
        _ => each.CompleteMessageAsync(each.Message),
    });
    processor.ProcessErrorAsync += _ => Task.CompletedTask;
    await processor.StartProcessingAsync();
    await UntilTheEnd();
    await processor.StopProcessingAsync();
}

async Task Sessions()
{
    await using var processor = client.CreateSessionProcessor(place, new ServiceBusSessionProcessorOptions
    {
        AutoCompleteMessages = false, MaxConcurrentSessions = 4, PrefetchCount = 10,
        SessionIdleTimeout = TimeSpan.FromSeconds(1),
    });
    processor.ProcessMessageAsync += each => OnMessage(each.Message, true, fate => fate switch
    {
        "abandon" => each.AbandonMessageAsync(each.Message),
        "dead" => each.DeadLetterMessageAsync(each.Message),
        "defer" => each.DeferMessageAsync(each.Message),
        _ => each.CompleteMessageAsync(each.Message),
    });
    processor.ProcessErrorAsync += _ => Task.CompletedTask;
    await processor.StartProcessingAsync();
    await UntilTheEnd();
    await processor.StopProcessingAsync();
}

// What both kinds of processors do with a message; `settle` is the call for a fate.
async Task OnMessage(ServiceBusReceivedMessage message, bool isInSession, Func<string, Task> settle)
{
    Ledger.Got(message, isInSession ? null : message.LockedUntil);
    var fate = Ledger.FateOf(message, isInSession);
    if (fate == "throw")
    {
        Ledger.Say("settling", message, ("how", fate));
        throw new InvalidOperationException("the handler has failed");
    }
    // A processor renews its locks: what is left to its lock is completed here.
    if (fate is "late" or "lapse") { await Task.Delay(500); fate = "complete"; }
    await Ledger.Settle(message, fate, () => settle(fate));
}

async Task Batches()
{
    await using var receiver = parts.Length > 1
        ? client.CreateReceiver(parts[0], parts[1]) : client.CreateReceiver(place);
    while (!ending.IsCancellationRequested)
    {
        var messages = await receiver.ReceiveMessagesAsync(20, TimeSpan.FromMilliseconds(500));
        await Task.WhenAll(messages.Select(each => Handle(receiver, each)));
    }
}

async Task Handle(ServiceBusReceiver receiver, ServiceBusReceivedMessage message)
{
    Ledger.Got(message, message.LockedUntil);
    var fate = Ledger.FateOf(message, false);
    if (fate == "lapse") { Ledger.Say("settling", message, ("how", fate)); return; }
    if (fate == "late") { await Task.Delay(500); fate = "complete"; }
    var isDone = await Ledger.Settle(message, fate, fate switch
    {
        "abandon" or "throw" => () => receiver.AbandonMessageAsync(message),
        "dead" => () => receiver.DeadLetterMessageAsync(message),
        "defer" => () => receiver.DeferMessageAsync(message),
        _ => () => receiver.CompleteMessageAsync(message),
    });
    if (isDone && fate == "defer" && Ledger.Hash(message.MessageId) % 2 == 0)
    {
        var again = await receiver.ReceiveDeferredMessageAsync(message.SequenceNumber);
        Ledger.Got(again, again.LockedUntil);
        await Ledger.Settle(again, "complete", () => receiver.CompleteMessageAsync(again));
    }
}

static class Ledger
{
    static readonly (uint Below, string Fate)[] Shares =
    {
        (68, "complete"), (80, "abandon"), (85, "throw"), (90, "dead"), (95, "defer"), (97, "lapse"),
        (100, "late"),
    };

    public static uint Hash(string text)
    {
        var value = 2166136261u;
        foreach (var each in Encoding.UTF8.GetBytes(text)) value = unchecked((value ^ each) * 16777619u);
        return value;
    }

    public static string FateOf(ServiceBusReceivedMessage message, bool isInSession)
    {
        var value = Hash($"{message.MessageId}/{message.DeliveryCount - 1}");
        if (message.MessageId.StartsWith("poison")) return value % 2 == 1 ? "throw" : "abandon";
        var fate = Shares.First(each => value % 100 < each.Below).Fate;
        return isInSession && fate == "lapse" ? "complete" : fate;
    }

    public static void Say(
        string what, ServiceBusReceivedMessage message, params (string Name, object? Value)[] fields)
    {
        var line = new Dictionary<string, object?>
        {
            ["what"] = what, ["id"] = message.MessageId, ["number"] = message.SequenceNumber,
            ["session"] = message.SessionId ?? "",
            ["at"] = DateTimeOffset.UtcNow.ToUnixTimeMilliseconds(),
        };
        foreach (var (name, value) in fields) line[name] = value;
        var text = JsonSerializer.Serialize(line);
        lock (Console.Out) { Console.Out.WriteLine(text); Console.Out.Flush(); }
    }

    public static void Got(ServiceBusReceivedMessage message, DateTimeOffset? until) =>
        Say("got", message, ("count", message.DeliveryCount - 1), ("until", until?.ToUnixTimeMilliseconds()));

    public static async Task<bool> Settle(ServiceBusReceivedMessage message, string how, Func<Task> call)
    {
        Say("settling", message, ("how", how));
        try { await call(); }
        catch (Exception error)
        {
            Say("refused", message, ("how", how), ("error", error.ToString()));
            return false;
        }
        Say("settled", message, ("how", how));
        return true;
    }
}
