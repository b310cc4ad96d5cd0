// Runs named scenarios of the unmodified Azure.Messaging.ServiceBus about batches, properties and
// administration, and prints one JSON object a scenario: {"scenario", "ok", "detail"}.
//
//   batches CONNECTION_STRING QUEUE
//
// There are a queue QUEUE, a partitioned queue QUEUE-partitioned, one with sessions besides, QUEUE-sessions,
// and one that detects duplicates besides, QUEUE-duplicates, all empty. Other queues are made here.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Text.Json;
using System.Threading.Tasks;
using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;

var (connectionString, queue) = (args[^2], args[^1]);
var patience = TimeSpan.FromSeconds(120);
await using var client = new ServiceBusClient(connectionString);
var administration = new ServiceBusAdministrationClient(connectionString);

await Run("any_count", AnyCount);
await Run("too_large", TooLarge);
await Run("partition_keys", PartitionKeys);
await Run("session_ids", SessionIds);
await Run("message_ids", MessageIds);
await Run("order_of_properties", OrderOfProperties);
await Run("dead_letter_reason_of_another_type", DeadLetterReasonOfAnotherType);
await Run("message_size_of_an_old_version", MessageSizeOfAnOldVersion);
await Run("path_of_dead_letters", PathOfDeadLetters);
await Run("size_after_a_send", SizeAfterASend);
await Run("dates_of_authorization_rules", DatesOfAuthorizationRules);
await Run("sizes_of_entities", SizesOfEntities);
await Run("empty_user_metadata", EmptyUserMetadata);

async Task Run(string name, Func<Task> scenario)
{
    try { await scenario(); Say(name, null); }
    catch (Exception error) { Say(name, error.ToString()); }
}

void Say(string name, string? detail) => Console.WriteLine(JsonSerializer.Serialize(
    new { scenario = name, ok = detail is null, detail = detail ?? "" }));

void Equal<T>(T wanted, T found, string what)
{
    if (!EqualityComparer<T>.Default.Equals(wanted, found))
        throw new InvalidOperationException($"{what}: {found} where {wanted} is due");
}

async Task<T> Refused<T>(Func<Task> act) where T : Exception
{
    try { await act(); }
    catch (T error) { return error; }
    throw new InvalidOperationException($"no {typeof(T).Name}");
}

async Task<ServiceBusReceivedMessage> Take(string from)
{
    await using var receiver = client.CreateReceiver(from);
    var message = await receiver.ReceiveMessageAsync(patience)
        ?? throw new InvalidOperationException("no message came");
    await receiver.CompleteMessageAsync(message);
    return message;
}

// A queue of one scenario's own: what another leaves behind is not in it.
async Task<string> Own(string name) => (await administration.CreateQueueAsync($"{queue}-{name}")).Value.Name;

// As many messages as a batch has room for: the service does not count them.
async Task AnyCount()
{
    var queue = await Own("any-count");
    await using var sender = client.CreateSender(queue);
    using var batch = await sender.CreateMessageBatchAsync();
    Equal(262_144L, batch.MaxSizeInBytes, "the size that the service names");
    var count = 0;
    while (batch.TryAddMessage(new ServiceBusMessage(BitConverter.GetBytes((ushort)count)))) count++;
    if (count < 16_001) throw new InvalidOperationException($"only {count} messages fit");
    await sender.SendMessagesAsync(batch);
    var options = new ServiceBusReceiverOptions { ReceiveMode = ServiceBusReceiveMode.ReceiveAndDelete };
    await using var receiver = client.CreateReceiver(queue, options);
    for (var at = 0; at < count;)
    {
        var found = await receiver.ReceiveMessagesAsync(1_000, patience);
        if (found.Count == 0) throw new InvalidOperationException($"{at} of {count} messages came");
        foreach (var each in found)
            Equal((ushort)at++, BitConverter.ToUInt16(each.Body.ToArray()), "the next message");
    }
    if (await receiver.ReceiveMessageAsync(TimeSpan.FromSeconds(1)) is not null)
        throw new InvalidOperationException("a message came twice");
}

// A transient error would be tried again.
async Task TooLarge()
{
    await using var sender = client.CreateSender(queue);
    var messages = Enumerable.Range(0, 3).Select(_ => new ServiceBusMessage(new byte[100_000]));
    var error = await Refused<ServiceBusException>(() => sender.SendMessagesAsync(messages));
    Equal(ServiceBusFailureReason.MessageSizeExceeded, error.Reason, "the reason");
    Equal(false, error.IsTransient, "transient");
}

// Sends batches that are refused, one that is taken, and finds the latter's two messages alone.
async Task Batches(string to, ServiceBusMessage[] taken, params ServiceBusMessage[][] refused)
{
    await using var sender = client.CreateSender(to);
    foreach (var each in refused)
        await Refused<InvalidOperationException>(() => sender.SendMessagesAsync(each));
    await sender.SendMessagesAsync(taken);
}

ServiceBusMessage Message(string? session = null, string? key = null, string? id = null)
{
    var message = new ServiceBusMessage("x");
    if (session is not null) message.SessionId = session;
    if (key is not null) message.PartitionKey = key;
    if (id is not null) message.MessageId = id;
    return message;
}

async Task PartitionKeys()
{
    var to = $"{queue}-partitioned";
    await Batches(to, [Message(key: "a"), Message(key: "a")],
        [Message(key: "a"), Message(key: "b")], [Message(key: "a"), Message()]);
    foreach (var _ in new int[2]) Equal("a", (await Take(to)).PartitionKey, "the key");
    await using var receiver = client.CreateReceiver(to);
    if (await receiver.ReceiveMessageAsync(TimeSpan.FromSeconds(1)) is not null)
        throw new InvalidOperationException("a refused message came");
}

async Task SessionIds()
{
    var to = $"{queue}-sessions";
    await Batches(to, [Message("a"), Message("A")], [Message("a"), Message("b")]);
    await using var receiver = await client.AcceptNextSessionAsync(to);
    Equal("a", receiver.SessionId, "the session");
    Equal(2, (await receiver.ReceiveMessagesAsync(2, patience)).Count, "its messages");
}

async Task MessageIds()
{
    var to = $"{queue}-duplicates";
    await Batches(to, [Message(key: "k", id: "1"), Message(key: "k", id: "1")],
        [Message(key: "k", id: "1"), Message(key: "k", id: "2")]);
    Equal("1", (await Take(to)).MessageId, "the message");
}

async Task OrderOfProperties()
{
    var names = new[] { "zeta", "alpha", "Mid", "beta" };
    var message = new ServiceBusMessage("x");
    foreach (var name in names) message.ApplicationProperties[name] = name;
    var queue = await Own("order-of-properties");
    await using var sender = client.CreateSender(queue);
    await sender.SendMessageAsync(message);
    await using var receiver = client.CreateReceiver(queue);
    var found = await receiver.ReceiveMessageAsync(patience);
    Equal(string.Join(",", names), string.Join(",", found.ApplicationProperties.Keys), "as received");
    var peeked = await receiver.PeekMessageAsync(0);
    Equal(string.Join(",", names), string.Join(",", peeked.ApplicationProperties.Keys), "as peeked");
    await receiver.DeadLetterMessageAsync(found, new Dictionary<string, object> { ["beta"] = "b", ["aa"] = 1 }, "why");
    var dead = await Dead(queue);
    Equal(string.Join(",", names) + ",aa,DeadLetterReason",
        string.Join(",", dead.ApplicationProperties.Keys.Where(each => each != "DeadLetterErrorDescription")), "as a dead letter");
}

async Task<ServiceBusReceivedMessage> Dead(string of)
{
    var options = new ServiceBusReceiverOptions { SubQueue = SubQueue.DeadLetter };
    await using var receiver = client.CreateReceiver(of, options);
    var message = await receiver.ReceiveMessageAsync(patience)
        ?? throw new InvalidOperationException("no dead letter came");
    await receiver.CompleteMessageAsync(message);
    return message;
}

async Task DeadLetterReasonOfAnotherType()
{
    var queue = await Own("another-type");
    await using var sender = client.CreateSender(queue);
    await sender.SendMessageAsync(new ServiceBusMessage("x"));
    await using var receiver = client.CreateReceiver(queue);
    var message = await receiver.ReceiveMessageAsync(patience);
    await receiver.DeadLetterMessageAsync(message, new Dictionary<string, object>
    {
        ["DeadLetterReason"] = 7, ["DeadLetterErrorDescription"] = true,
    });
    var dead = await Dead(queue);
    Equal<string?>(null, dead.DeadLetterReason, "the reason");
    Equal<string?>(null, dead.DeadLetterErrorDescription, "the description");
    Equal<object>(7, dead.ApplicationProperties["DeadLetterReason"], "the property");
    Equal<object>(true, dead.ApplicationProperties["DeadLetterErrorDescription"], "the other property");
}

// An update by an old client leaves alone what it does not know.
async Task MessageSizeOfAnOldVersion()
{
    var options = new ServiceBusAdministrationClientOptions(ServiceBusAdministrationClientOptions.ServiceVersion.V2017_04);
    var old = new ServiceBusAdministrationClient(connectionString, options);
    Equal<long?>(null, (await old.GetQueueAsync(queue)).Value.MaxMessageSizeInKilobytes, "of the old version");
    Equal<long?>(256, (await administration.GetQueueAsync(queue)).Value.MaxMessageSizeInKilobytes, "of the new one");
}

async Task PathOfDeadLetters()
{
    foreach (var path in new[] { $"{queue}/$DeadLetterQueue", $"{queue}/$Transfer/$DeadLetterQueue" })
        await Refused<ArgumentException>(() => administration.GetQueueAsync(path));
}

async Task SizeAfterASend()
{
    var queue = await Own("size");
    await using var sender = client.CreateSender(queue);
    await sender.SendMessageAsync(new ServiceBusMessage("some text"));
    var until = DateTime.UtcNow.AddMinutes(2); // a message that has no number yet is not counted
    QueueRuntimeProperties facts;
    do facts = (await administration.GetQueueRuntimePropertiesAsync(queue)).Value;
    while (facts.ActiveMessageCount < 1 && DateTime.UtcNow < until);
    Equal(1L, facts.ActiveMessageCount, "messages");
    if (facts.SizeInBytes <= 0) throw new InvalidOperationException($"{facts.SizeInBytes} bytes");
    await Take(queue);
}

async Task DatesOfAuthorizationRules()
{
    var name = $"{queue}-rules";
    var before = DateTimeOffset.UtcNow.AddSeconds(-1);
    var made = new CreateQueueOptions(name);
    made.AuthorizationRules.Add(new SharedAccessAuthorizationRule("one", [AccessRights.Send]));
    await administration.CreateQueueAsync(made);
    var found = (await administration.GetQueueAsync(name)).Value;
    var rule = found.AuthorizationRules[0];
    if (rule.CreatedTime < before || rule.ModifiedTime != rule.CreatedTime)
        throw new InvalidOperationException($"made {rule.CreatedTime}, changed {rule.ModifiedTime}");
    rule.Rights = [AccessRights.Listen];
    await administration.UpdateQueueAsync(found);
    var changed = (await administration.GetQueueAsync(name)).Value.AuthorizationRules[0];
    Equal(rule.CreatedTime, changed.CreatedTime, "made");
    if (changed.ModifiedTime <= rule.CreatedTime) throw new InvalidOperationException("not changed since");
    await administration.DeleteQueueAsync(name);
}

async Task SizesOfEntities()
{
    var name = $"{queue}-sizes";
    foreach (var size in new long[] { 1, 1_000, 1_025, 6_144, 10_240 })
        await Refused<ArgumentException>(() => administration.CreateQueueAsync(
            new CreateQueueOptions(name) { MaxSizeInMegabytes = size }));
    var made = (await administration.CreateQueueAsync(new CreateQueueOptions(name) { MaxSizeInMegabytes = 5_120 })).Value;
    made.MaxSizeInMegabytes = 2_048;
    Equal(2_048L, (await administration.UpdateQueueAsync(made)).Value.MaxSizeInMegabytes, "the size");
    made.MaxSizeInMegabytes = 1;
    await Refused<ArgumentException>(() => administration.UpdateQueueAsync(made));
    await administration.DeleteQueueAsync(name);
}

async Task EmptyUserMetadata()
{
    foreach (var text in new[] { "", null, "who" })
    {
        var name = $"{queue}-metadata";
        var options = new CreateQueueOptions(name);
        if (text is not null) options.UserMetadata = text;
        await administration.CreateQueueAsync(options);
        var found = (await administration.GetQueueAsync(name)).Value;
        Equal(text, found.UserMetadata, "the metadata");
        Equal(text, (await administration.UpdateQueueAsync(found)).Value.UserMetadata, "the same, after an update");
        await administration.DeleteQueueAsync(name);
    }
}
