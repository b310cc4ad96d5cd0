// What frameworks ask of Service Bus at their start and in their loops, by the unmodified
// Azure.Messaging.ServiceBus, which all of them use; and plain work with cross-entity transactions
// enabled. Prints one JSON object a scenario: {"scenario", "ok", "detail"}.
//
//   frameworks CONNECTION_STRING PREFIX
//
// All entities are made here; their names begin with PREFIX.
using System;
using System.Collections.Generic;
using System.Linq;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;
using System.Transactions;
using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;

var (connectionString, prefix) = (args[0], args[1]);
var patience = TimeSpan.FromSeconds(120);
var minutes = TimeSpan.FromMinutes(5);
await using var client = new ServiceBusClient(connectionString);
await using var crossing = Crossing();
var administration = new ServiceBusAdministrationClient(connectionString);

await Run("nservicebus_setup", NServiceBusSetup);
await Run("nservicebus_subscribe", NServiceBusSubscribe);
await Run("nservicebus_receive_only", NServiceBusReceiveOnly);
await Run("masstransit_topology", MassTransitTopology);
await Run("rebus_start", RebusStart);
await Run("wolverine_provisioning", WolverineProvisioning);
await Run("functions_triggers", FunctionsTriggers);
await Run("functions_scaling", FunctionsScaling);
await Run("cross_entity_plain_use", CrossEntityPlainUse);
await Run("cross_entity_sessions", CrossEntitySessions);
await Run("cross_entity_many_links", CrossEntityManyLinks);
await Run("nservicebus_atomic", NServiceBusAtomic);

ServiceBusClient Crossing() => new(
    connectionString, new ServiceBusClientOptions { EnableCrossEntityTransactions = true, Identifier = "crossing" });

async Task Run(string name, Func<Task> scenario)
{
    string? detail = null;
    try { await scenario(); }
    catch (Exception error) { detail = error.ToString(); }
    Console.WriteLine(JsonSerializer.Serialize(new { scenario = name, ok = detail is null, detail = detail ?? "" }));
}

void Equal<T>(T wanted, T found, string what)
{
    if (!EqualityComparer<T>.Default.Equals(wanted, found))
        throw new InvalidOperationException($"{what}: {found} where {wanted} is due");
}

async Task Fails(ServiceBusFailureReason reason, Func<Task> work)
{
    try { await work(); }
    catch (ServiceBusException error)
    {
        Equal(reason, error.Reason, error.Message);
        return;
    }
    throw new InvalidOperationException($"{reason} is due");
}

async Task<ServiceBusReceivedMessage> Take(ServiceBusClient by, string queue)
{
    await using var receiver = by.CreateReceiver(queue);
    var found = await receiver.ReceiveMessageAsync(patience) ?? throw new InvalidOperationException($"{queue} is empty");
    await receiver.CompleteMessageAsync(found);
    return found;
}

async Task Send(ServiceBusClient by, string to, params ServiceBusMessage[] messages)
{
    await using var sender = by.CreateSender(to);
    await sender.SendMessagesAsync(messages);
}

// Runs a processor until it has handled so many messages.
async Task Process(ServiceBusProcessor processor, int count, Func<ProcessMessageEventArgs, Task> handle)
{
    var (done, left) = (new TaskCompletionSource(), count);
    processor.ProcessMessageAsync += async each =>
    {
        await handle(each);
        if (Interlocked.Decrement(ref left) == 0) done.TrySetResult();
    };
    processor.ProcessErrorAsync += each =>
    {
        done.TrySetException(each.Exception);
        return Task.CompletedTask;
    };
    await processor.StartProcessingAsync();
    try { await done.Task.WaitAsync(patience); }
    finally { await processor.StopProcessingAsync(); }
    await processor.DisposeAsync();
}

// -- NServiceBus

CreateQueueOptions NServiceBusQueue(string name) => new(name)
{
    EnableBatchedOperations = true, LockDuration = minutes, MaxDeliveryCount = int.MaxValue, MaxSizeInMegabytes = 5 * 1024,
};

CreateSubscriptionOptions NServiceBusSubscription(string topic, string queue) => new(topic, queue)
{
    LockDuration = minutes, ForwardTo = queue, EnableDeadLetteringOnFilterEvaluationExceptions = false,
    MaxDeliveryCount = int.MaxValue, EnableBatchedOperations = true, UserMetadata = queue,
};

async Task NServiceBusSetup()
{
    Equal(false, (await administration.QueueExistsAsync("$nservicebus-verification-queue")).Value, "exists");
    var (error, receive) = (NServiceBusQueue($"{prefix}.error"), NServiceBusQueue($"{prefix}.sales"));
    receive.ForwardDeadLetteredMessagesTo = error.Name;
    foreach (var each in new[] { error, receive }) await administration.CreateQueueAsync(each);
    await Fails(ServiceBusFailureReason.MessagingEntityAlreadyExists, () => administration.CreateQueueAsync(receive));
    var found = (await administration.GetQueueAsync(receive.Name)).Value;
    Equal(int.MaxValue, found.MaxDeliveryCount, "MaxDeliveryCount");
    Equal(minutes, found.LockDuration, "LockDuration");
    await administration.UpdateQueueAsync(found);
}

async Task NServiceBusSubscribe()
{
    var (topic, queue, type) = ($"{prefix}.bundle-1", $"{prefix}.sales", "Contoso.Sales.OrderPlaced");
    var options = new CreateTopicOptions(topic) { EnableBatchedOperations = true, MaxSizeInMegabytes = 5 * 1024 };
    await administration.CreateTopicAsync(options);
    await Fails(ServiceBusFailureReason.MessagingEntityAlreadyExists, () => administration.CreateTopicAsync(options));
    var none = new CreateRuleOptions("$default", new FalseRuleFilter());
    var subscription = NServiceBusSubscription(topic, queue);
    await administration.CreateSubscriptionAsync(subscription, none);
    await Fails(ServiceBusFailureReason.MessagingEntityAlreadyExists,
        () => administration.CreateSubscriptionAsync(subscription, none));
    Equal(int.MaxValue, (await administration.GetSubscriptionAsync(topic, queue)).Value.MaxDeliveryCount, "count");

    await using var manager = client.CreateRuleManager(topic, queue);
    var by = new CreateRuleOptions(type, new SqlRuleFilter($"[NServiceBus.EnclosedMessageTypes] LIKE '%{type}%'"));
    await manager.CreateRuleAsync(by);
    by.Name = type.ToUpperInvariant();
    await Fails(ServiceBusFailureReason.MessagingEntityAlreadyExists, () => manager.CreateRuleAsync(by));
    var filter = new CorrelationRuleFilter { ApplicationProperties = { ["Contoso.Sales.OrderBilled"] = true } };
    await manager.CreateRuleAsync(new CreateRuleOptions("Contoso.Sales.OrderBilled", filter));
    var names = new List<string>();
    await foreach (var each in manager.GetRulesAsync()) names.Add(each.Name);
    Equal($"$default,Contoso.Sales.OrderBilled,{type}", string.Join(",", names), "rules");

    ServiceBusMessage Event(string body, string property, object value) =>
        new(body) { ApplicationProperties = { [property] = value } };
    await Send(client, topic, Event("none", "NServiceBus.EnclosedMessageTypes", "Contoso.Sales.Other"));
    await Send(client, topic, Event("placed", "NServiceBus.EnclosedMessageTypes", $"{type}, Contoso;System.Object"));
    await Send(client, topic, Event("billed", "Contoso.Sales.OrderBilled", true));
    Equal("placed", (await Take(client, queue)).Body.ToString(), "the body");
    Equal("billed", (await Take(client, queue)).Body.ToString(), "the body");
    await manager.DeleteRuleAsync(type.ToLowerInvariant());
    await Fails(ServiceBusFailureReason.MessagingEntityNotFound, () => manager.DeleteRuleAsync(type));
    await Fails(ServiceBusFailureReason.MessagingEntityNotFound,
        () => administration.DeleteSubscriptionAsync(topic, "nobody"));
}

// Its mode ReceiveOnly: sends in a handler are not part of the receive.
async Task NServiceBusReceiveOnly()
{
    var queue = $"{prefix}.sales";
    await Send(client, queue, new ServiceBusMessage("order") { TimeToLive = TimeSpan.MaxValue });
    var processor = client.CreateProcessor(queue, new ServiceBusProcessorOptions
    {
        PrefetchCount = 20, MaxConcurrentCalls = 2, ReceiveMode = ServiceBusReceiveMode.PeekLock,
        AutoCompleteMessages = false, Identifier = $"Processor-Main-{queue}",
    });
    var count = 0;
    await Process(processor, 2, async each =>
    {
        Equal(++count, each.Message.DeliveryCount, "DeliveryCount");
        if (count == 1)
        {
            await each.AbandonMessageAsync(each.Message);
            return;
        }
        await using var sender = client.CreateSender($"{prefix}.error");
        using var batch = await sender.CreateMessageBatchAsync();
        Equal(true, batch.TryAddMessage(new ServiceBusMessage("reply")), "in the batch");
        await sender.SendMessagesAsync(batch);
        await each.CompleteMessageAsync(each.Message);
    });
    Equal("reply", (await Take(client, $"{prefix}.error")).Body.ToString(), "the body");
}

// -- MassTransit

async Task MassTransitTopology()
{
    var (queue, topic, parent) = ($"{prefix}-submit-order", $"{prefix}.orders/order-submitted", $"{prefix}.orders~base");
    await Fails(ServiceBusFailureReason.MessagingEntityNotFound, () => administration.GetQueueAsync(queue));
    await Fails(ServiceBusFailureReason.MessagingEntityNotFound, () => administration.GetTopicAsync(topic));
    await Fails(ServiceBusFailureReason.MessagingEntityNotFound, () => administration.GetSubscriptionAsync(topic, queue));
    var (idle, life) = (TimeSpan.FromDays(427), TimeSpan.FromDays(366));
    foreach (var each in new[] { topic, parent })
        await administration.CreateTopicAsync(new CreateTopicOptions(each)
        { AutoDeleteOnIdle = idle, DefaultMessageTimeToLive = life, EnableBatchedOperations = true });
    var made = (await administration.CreateQueueAsync(new CreateQueueOptions(queue)
    {
        AutoDeleteOnIdle = idle, DefaultMessageTimeToLive = life, EnableBatchedOperations = true,
        DeadLetteringOnMessageExpiration = true, LockDuration = minutes, MaxDeliveryCount = 5,
    })).Value;
    Equal((idle, life), (made.AutoDeleteOnIdle, made.DefaultMessageTimeToLive), "times");
    await administration.CreateQueueAsync(new CreateQueueOptions($"{queue}_bus") { AutoDeleteOnIdle = minutes });

    CreateSubscriptionOptions To(string from, string name, string target) => new(from, name)
    { ForwardTo = target, AutoDeleteOnIdle = idle, DefaultMessageTimeToLive = life, LockDuration = minutes, MaxDeliveryCount = 5 };
    var rule = new CreateRuleOptions(Guid.NewGuid().ToString(), new SqlRuleFilter("region = 'west'"));
    await administration.CreateSubscriptionAsync(To(topic, "submit-order", queue), rule);
    await administration.CreateSubscriptionAsync(To(parent, "order-submitted-orders", topic));
    var found = (await administration.GetSubscriptionAsync(topic, "submit-order")).Value;
    Equal(true, found.ForwardTo.EndsWith($"/{queue}"), found.ForwardTo);
    await administration.UpdateSubscriptionAsync(found);
    var rules = new List<RuleProperties>();
    await foreach (var each in administration.GetRulesAsync(topic, "submit-order")) rules.Add(each);
    Equal(rule.Name, rules.Single().Name, "the rule");
    Equal(rule.Filter, rules[0].Filter, "the filter");
    rules[0].Filter = new SqlRuleFilter("region = 'east'");
    await administration.UpdateRuleAsync(topic, "submit-order", rules[0]);

    ServiceBusMessage From(string region) => new(region)
    { ApplicationProperties = { ["region"] = region }, ContentType = "application/vnd.masstransit+json" };
    await Send(client, parent, From("west"), From("east"));
    var processor = client.CreateProcessor(queue, new ServiceBusProcessorOptions
    { AutoCompleteMessages = false, PrefetchCount = 32, MaxAutoLockRenewalDuration = minutes, MaxConcurrentCalls = 16 });
    await Process(processor, 1, async each =>
    {
        Equal("east", each.Message.Body.ToString(), "the body");
        await each.CompleteMessageAsync(each.Message);
    });
    await administration.DeleteSubscriptionAsync(topic, "submit-order");
}

// -- Rebus

async Task RebusStart()
{
    var (queue, topic) = ($"{prefix}_rebus", $"{prefix}_Contoso_Ordered__Contoso");
    await using var sender = client.CreateSender(queue);
    var path = $"http://{sender.FullyQualifiedNamespace}/{sender.EntityPath}";
    Equal(false, (await administration.QueueExistsAsync(queue)).Value, "exists");
    await administration.CreateQueueAsync(new CreateQueueOptions(queue) { MaxDeliveryCount = 100 });
    var found = (await administration.GetQueueAsync(queue)).Value;
    found.LockDuration = TimeSpan.FromMinutes(3);
    Equal(found.LockDuration, (await administration.UpdateQueueAsync(found)).Value.LockDuration, "LockDuration");
    Equal(false, (await administration.TopicExistsAsync(topic)).Value, "exists");
    await administration.CreateTopicAsync(topic);
    Equal(false, (await administration.SubscriptionExistsAsync(topic, queue)).Value, "exists");
    await administration.CreateSubscriptionAsync(new CreateSubscriptionOptions(topic, queue) { ForwardTo = path });
    Equal(path, Portless((await administration.GetSubscriptionAsync(topic, queue)).Value.ForwardTo), "ForwardTo");

    await using var events = client.CreateSender(topic);
    using var batch = await events.CreateMessageBatchAsync();
    Equal(true, batch.TryAddMessage(new ServiceBusMessage("event")), "in the batch");
    await events.SendMessagesAsync(batch);
    await using var receiver = client.CreateReceiver(queue);
    var message = await receiver.ReceiveMessageAsync(patience);
    await receiver.RenewMessageLockAsync(message);
    await receiver.AbandonMessageAsync(message, new Dictionary<string, object> { ["rbs2-error"] = "again" });
    message = await receiver.ReceiveMessageAsync(patience);
    Equal<object>("again", message.ApplicationProperties["rbs2-error"], "the property");
    await receiver.CompleteMessageAsync(message);

    await Send(client, queue, new ServiceBusMessage("one"), new ServiceBusMessage("two"));
    await using var purge = client.CreateReceiver(
        queue, new ServiceBusReceiverOptions { ReceiveMode = ServiceBusReceiveMode.ReceiveAndDelete });
    for (var count = 0; count < 2;) count += (await purge.ReceiveMessagesAsync(100, TimeSpan.FromSeconds(2))).Count;
}

string Portless(string address) => new UriBuilder(address) { Port = -1 }.Uri.ToString();

// -- Wolverine

async Task WolverineProvisioning()
{
    var (replies, topic, queue) =
        ($"wolverine.response.{prefix}.{Guid.NewGuid():N}", $"{prefix}.letters", $"{prefix}.wolverine");
    foreach (var name in new[] { replies, $"wolverine.retries.{prefix}", "wolverine-dead-letter-queue", queue })
    {
        if ((await administration.QueueExistsAsync(name)).Value) continue;
        var options = new CreateQueueOptions(name) { DeadLetteringOnMessageExpiration = false, RequiresSession = name == queue };
        if (name == replies) options.AutoDeleteOnIdle = minutes;
        await administration.CreateQueueAsync(options);
    }
    await administration.CreateTopicAsync(new CreateTopicOptions(topic));
    await administration.CreateSubscriptionAsync(new CreateSubscriptionOptions(topic, "one"), new CreateRuleOptions());
    await foreach (var each in administration.GetRulesAsync(topic, "one"))
    {
        Equal(new CreateRuleOptions().Name, each.Name, "the rule's name");
        Equal(true, each.Filter is TrueRuleFilter, "the rule's filter");
        each.Filter = new SqlRuleFilter("color = 'red'");
        await administration.UpdateRuleAsync(topic, "one", each);
    }
    Equal(EntityStatus.Active, (await administration.GetQueueAsync(queue)).Value.Status, "Status");

    await Send(client, queue, Enumerable.Range(0, 3).Select(n => new ServiceBusMessage($"{n}") { SessionId = "s" }).ToArray());
    using var end = new CancellationTokenSource(patience);
    await using (var session = await client.AcceptNextSessionAsync(queue, new ServiceBusSessionReceiverOptions(), end.Token))
    {
        var taken = new List<string>();
        while (taken.Count < 3)
            foreach (var each in await session.ReceiveMessagesAsync(25, TimeSpan.FromSeconds(1), end.Token))
            {
                taken.Add(each.Body.ToString());
                if (taken.Count < 3) await session.CompleteMessageAsync(each);
                else await session.DeadLetterMessageAsync(each, "InvalidOperationException", "it failed");
            }
        Equal("0,1,2", string.Join(",", taken), "in order");
    }
    var counts = (await administration.GetQueueRuntimePropertiesAsync(queue)).Value;
    Equal((0L, 1L), (counts.ActiveMessageCount, counts.DeadLetterMessageCount), "counts");
    var listed = new List<string>();
    await foreach (var each in administration.GetQueuesAsync()) listed.Add(each.Name);
    Equal(true, listed.Contains(replies), "in the list");
    await administration.DeleteQueueAsync(replies);
}

// -- Azure Functions

async Task FunctionsTriggers()
{
    var (queue, topic) = ($"{prefix}-functions", $"{prefix}-functions-topic");
    await administration.CreateQueueAsync(queue);
    await administration.CreateTopicAsync(topic);
    await administration.CreateSubscriptionAsync(topic, "sub");
    await Send(client, queue, Enumerable.Range(0, 20).Select(n => new ServiceBusMessage($"{n}")).ToArray());
    var processor = client.CreateProcessor(queue, new ServiceBusProcessorOptions
    { AutoCompleteMessages = true, MaxAutoLockRenewalDuration = minutes, MaxConcurrentCalls = 32 });
    await Process(processor, 20, _ => Task.CompletedTask);

    // A trigger of many messages at once; it names a subscription by its path.
    await Send(client, topic, Enumerable.Range(0, 20).Select(n => new ServiceBusMessage($"{n}")).ToArray());
    await using var batches = client.CreateReceiver($"{topic}/Subscriptions/sub", new ServiceBusReceiverOptions());
    for (var count = 0; count < 20;)
        foreach (var each in await batches.ReceiveMessagesAsync(1000, patience))
        {
            await batches.CompleteMessageAsync(each);
            count++;
        }
}

async Task FunctionsScaling()
{
    var (queue, topic) = ($"{prefix}-functions", $"{prefix}-functions-topic");
    await Send(client, queue, new ServiceBusMessage("waiting"));
    await Send(client, topic, new ServiceBusMessage("waiting"));
    await using var receiver = client.CreateReceiver(queue);
    var end = DateTime.UtcNow + patience;
    ServiceBusReceivedMessage? seen;
    while ((seen = await receiver.PeekMessageAsync(fromSequenceNumber: 0)) is null)
        if (DateTime.UtcNow > end) throw new InvalidOperationException("no message is seen");
    Equal(ServiceBusMessageState.Active, seen.State, "State");
    Equal(1, (await receiver.PeekMessagesAsync(10, fromSequenceNumber: seen.SequenceNumber)).Count, "peeked");
    Equal(false, (await administration.GetQueueAsync(queue)).Value.EnablePartitioning, "partitioned");
    Equal(false, (await administration.GetTopicAsync(topic)).Value.EnablePartitioning, "partitioned");
    while ((await administration.GetQueueRuntimePropertiesAsync(queue)).Value.ActiveMessageCount != 1
        || (await administration.GetSubscriptionRuntimePropertiesAsync(topic, "sub")).Value.ActiveMessageCount != 1)
        if (DateTime.UtcNow > end) throw new InvalidOperationException("the counts are not 1");
    await Take(client, queue);
}

// -- EnableCrossEntityTransactions: all links in one session, behind that of a coordinator

// A client receives from one entity, and sends to any: another receiver of its is refused, as at Azure.
async Task CrossEntityPlainUse()
{
    var (one, two) = ($"{prefix}-one", $"{prefix}-two");
    foreach (var each in new[] { one, two }) await administration.CreateQueueAsync(each);
    await Send(crossing, one, new ServiceBusMessage("first"), new ServiceBusMessage("second"));
    await using (var receiver = crossing.CreateReceiver(one))
    {
        var first = await receiver.ReceiveMessageAsync(patience);
        await Send(crossing, two, new ServiceBusMessage("answer"));
        await receiver.RenewMessageLockAsync(first);
        await receiver.CompleteMessageAsync(first);
        var second = await receiver.ReceiveMessageAsync(patience);
        await receiver.DeferMessageAsync(second);
        await receiver.DeadLetterMessageAsync(await receiver.ReceiveDeferredMessageAsync(second.SequenceNumber), "why");
    }
    await using (var dead = crossing.CreateReceiver(one, new ServiceBusReceiverOptions { SubQueue = SubQueue.DeadLetter }))
        await dead.CompleteMessageAsync(await dead.ReceiveMessageAsync(patience));
    Equal("answer", (await Take(client, two)).Body.ToString(), "the body");
    await using var sender = crossing.CreateSender(two);
    var number = await sender.ScheduleMessageAsync(new ServiceBusMessage("later"), DateTimeOffset.UtcNow.AddHours(1));
    await sender.CancelScheduledMessageAsync(number);
    await Send(crossing, two, Enumerable.Range(0, 50).Select(n => new ServiceBusMessage($"{n}")).ToArray());
    await using var own = Crossing();
    var processor = own.CreateProcessor(two, new ServiceBusProcessorOptions { PrefetchCount = 20, MaxConcurrentCalls = 8 });
    await Process(processor, 50, each => Send(own, one, new ServiceBusMessage(each.Message.Body)));
    await using var rest = crossing.CreateReceiver(one);
    for (var count = 0; count < 50;)
        foreach (var each in await rest.ReceiveMessagesAsync(50 - count, patience))
        {
            await rest.CompleteMessageAsync(each);
            count++;
        }
}

// With a client of its own: it sends to others only while the entity that it received from first is received from.
async Task CrossEntitySessions()
{
    var queue = $"{prefix}-sessions";
    await administration.CreateQueueAsync(new CreateQueueOptions(queue) { RequiresSession = true });
    await Send(client, queue, new ServiceBusMessage("x") { SessionId = "s" });
    await using var own = Crossing();
    await using var session = await own.AcceptSessionAsync(queue, "s");
    await session.SetSessionStateAsync(new BinaryData("state"));
    Equal("state", (await session.GetSessionStateAsync()).ToString(), "the state");
    var message = await session.ReceiveMessageAsync(patience);
    await Send(own, $"{prefix}-two", new ServiceBusMessage("answer"));
    await session.CompleteMessageAsync(message);
    Equal("answer", (await Take(client, $"{prefix}-two")).Body.ToString(), "the body");
}

async Task CrossEntityManyLinks()
{
    var senders = Enumerable.Range(0, 100).Select(_ => crossing.CreateSender($"{prefix}-one")).ToArray();
    await Task.WhenAll(senders.Select(each => each.SendMessageAsync(new ServiceBusMessage("x"))));
    foreach (var each in senders) await each.DisposeAsync();
    for (var count = 0; count < 100; count++) await Take(crossing, $"{prefix}-one");
}

// TransportTransactionMode.SendsAtomicWithReceive, NServiceBus's default: each operation in a scope of its own around one transaction.
// Every third handler fails first, behind its sends.
async Task NServiceBusAtomic()
{
    var (endpoint, orders, audit) = ($"{prefix}-atomic", $"{prefix}-atomic-orders", $"{prefix}-atomic-audit");
    foreach (var name in new[] { endpoint, orders, audit })
        await administration.CreateQueueAsync(NServiceBusQueue(name));
    await Send(client, endpoint, Enumerable.Range(0, 30).Select(n => new ServiceBusMessage($"{n}")).ToArray());
    await using var own = Crossing();
    var options = new ServiceBusProcessorOptions { AutoCompleteMessages = false, PrefetchCount = 10, MaxConcurrentCalls = 4 };
    await Process(own.CreateProcessor(endpoint, options), 40, async each =>
    {
        using var transaction = new CommittableTransaction(TimeSpan.FromMinutes(2));
        async Task Within(Func<Task> work)
        {
            using var scope = new TransactionScope(transaction, TransactionScopeAsyncFlowOption.Enabled);
            await work();
            scope.Complete();
        }
        var body = each.Message.Body;
        await Within(() => Send(own, orders, new ServiceBusMessage(body)));
        await Within(() => Send(own, audit, new ServiceBusMessage(body)));
        if (each.Message.DeliveryCount == 1 && int.Parse(body.ToString()) % 3 == 0)
        {
            transaction.Rollback();
            await each.AbandonMessageAsync(each.Message);
            return;
        }
        await Within(() => each.CompleteMessageAsync(each.Message));
        transaction.Commit();
    });
    foreach (var name in new[] { orders, audit })
    {
        var found = new List<string>();
        await using var receiver = client.CreateReceiver(name);
        while (found.Count < 30) found.Add((await Take(client, name)).Body.ToString());
        Equal(30, found.Distinct().Count(), $"the bodies in {name}");
        Equal(null, await receiver.ReceiveMessageAsync(TimeSpan.FromSeconds(2)), $"one more in {name}");
    }
    await using var rest = client.CreateReceiver(endpoint);
    Equal(null, await rest.ReceiveMessageAsync(TimeSpan.FromSeconds(2)), "what is left");
}
