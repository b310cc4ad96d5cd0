// Runs named scenarios of the unmodified Azure.Messaging.ServiceBus about values and times, and
// prints one JSON object a scenario: {"scenario", "ok", "detail"}.
//
//   values CONNECTION_STRING QUEUE
//
// There is a topic QUEUE-topic; its subscriptions, and queues, are made here. Their names begin with QUEUE.
//
//   values send VALUE... CONNECTION_STRING QUEUE      sends a message with these decimals as v0, v1...
//   values receive VALUE... CONNECTION_STRING QUEUE   receives one, and compares
using System;
using System.Collections.Generic;
using System.Globalization;
using System.Linq;
using System.Text.Json;
using System.Threading.Tasks;
using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;

var (connectionString, queue, rest) = (args[^2], args[^1], args[..^2]);
var patience = TimeSpan.FromSeconds(120);
await using var client = new ServiceBusClient(connectionString);
var administration = new ServiceBusAdministrationClient(connectionString);

if (rest.Length > 0)
{
    var given = rest.Skip(1).Select(each => decimal.Parse(each, CultureInfo.InvariantCulture)).ToArray();
    if (rest[0] == "send") await Send(queue, given);
    else Same(given, Decimals(await Take(queue)));
    Say(rest[0], null);
    return;
}

await Run("every_decimal", EveryDecimal);
await Run("decimal_of_a_settlement", DecimalOfASettlement);
await Run("decimal_in_filters", DecimalInFilters);
await Run("decimal_in_actions", DecimalInActions);
await Run("rules_over_http", RulesOverHttp);
await Run("rules_by_rule_manager", RulesByRuleManager);
await Run("times_of_a_capped_message", TimesOfACappedMessage);
await Run("times_of_a_scheduled_message", TimesOfAScheduledMessage);
await Run("times_of_a_peek", TimesOfAPeek);

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

// With the same digits and places, not only of the same value.
void Same(decimal[] wanted, decimal[] found)
{
    Equal(wanted.Length, found.Length, "decimals");
    foreach (var (one, other) in wanted.Zip(found))
        Equal(string.Join(",", decimal.GetBits(one)), string.Join(",", decimal.GetBits(other)), $"{one}");
}

decimal[] Decimals(ServiceBusReceivedMessage message) => Enumerable.Range(0, message.ApplicationProperties.Count)
    .Select(at => (decimal)message.ApplicationProperties[$"v{at}"]).ToArray();

async Task Send(string to, decimal[] values)
{
    var message = new ServiceBusMessage("x");
    for (var at = 0; at < values.Length; at++) message.ApplicationProperties[$"v{at}"] = values[at];
    await using var sender = client.CreateSender(to);
    await sender.SendMessageAsync(message);
}

async Task<ServiceBusReceivedMessage> Take(string from, string? subscription = null)
{
    await using var receiver = subscription is null
        ? client.CreateReceiver(from) : client.CreateReceiver(from, subscription);
    var message = await receiver.ReceiveMessageAsync(patience)
        ?? throw new InvalidOperationException("no message came");
    await receiver.CompleteMessageAsync(message);
    return message;
}

// A queue of one scenario's own: what another leaves behind is not in it.
async Task<string> Own(string name, TimeSpan? ttl = null)
{
    var options = new CreateQueueOptions($"{queue}-{name}");
    if (ttl is { } given) options.DefaultMessageTimeToLive = given;
    return (await administration.CreateQueueAsync(options)).Value.Name;
}

// The same of the topic.
async Task<string> OwnSubscription(string name) =>
    (await administration.CreateSubscriptionAsync($"{queue}-topic", name)).Value.SubscriptionName;

async Task EveryDecimal()
{
    var queue = await Own("every-decimal");
    var random = new Random(7);
    var values = new List<decimal>
    {
        0m, 0.00m, -0.0m, 1m, 79.90m, -0.01m, decimal.MaxValue, decimal.MinValue,
        0.0000000000000000000000000001m, 42949672.95m, 42949672.96m, 1.0000000000000000000000000000m,
    };
    for (var at = 0; at < 300; at++)
        values.Add(new decimal(random.Next(), random.Next(), random.Next() >> random.Next(31),
            random.Next(2) == 1, (byte)random.Next(29)));
    foreach (var each in values.Chunk(60))
    {
        await Send(queue, each);
        Same(each, Decimals(await Take(queue)));
    }
}

async Task DecimalOfASettlement()
{
    var queue = await Own("settlement");
    await Send(queue, [1.50m]);
    await using var receiver = client.CreateReceiver(queue);
    var message = await receiver.ReceiveMessageAsync(patience);
    await receiver.AbandonMessageAsync(message, new Dictionary<string, object> { ["v0"] = 2.50m, ["v1"] = 7.25m });
    Same([2.50m, 7.25m], Decimals(await Take(queue)));
}

// Makes `rules` of a subscription the only ones.
async Task Only(string subscription, params CreateRuleOptions[] rules)
{
    var topic = $"{queue}-topic";
    await foreach (var each in administration.GetRulesAsync(topic, subscription))
        await administration.DeleteRuleAsync(topic, subscription, each.Name);
    foreach (var each in rules) await administration.CreateRuleAsync(topic, subscription, each);
}

async Task DecimalInFilters()
{
    var subscription = await OwnSubscription("filters");
    foreach (var expression in new[] { "p = 7", "p * 2 = 14", "p IN (1, 7)", "p = 7.0", "p < 7.1 AND p > d" })
    {
        await Only(subscription, new CreateRuleOptions("one", new SqlRuleFilter(expression)));
        var message = new ServiceBusMessage(expression);
        message.ApplicationProperties["p"] = 7.00m;
        message.ApplicationProperties["d"] = 6.9;
        await using var sender = client.CreateSender($"{queue}-topic");
        await sender.SendMessageAsync(message);
        Equal(expression, (await Take($"{queue}-topic", subscription)).Body.ToString(), "the body");
    }
}

async Task DecimalInActions()
{
    var subscription = await OwnSubscription("actions");
    await Only(subscription, new CreateRuleOptions("one", new TrueRuleFilter()) { Action = new SqlRuleAction("SET p = p * 2") });
    var message = new ServiceBusMessage("x");
    message.ApplicationProperties["p"] = 39.95m;
    await using var sender = client.CreateSender($"{queue}-topic");
    await sender.SendMessageAsync(message);
    Equal(79.90m, (decimal)(await Take($"{queue}-topic", subscription)).ApplicationProperties["p"], "p");
}

async Task RulesOverHttp()
{
    var subscription = await OwnSubscription("http");
    var when = new DateTime(2026, 1, 1, 0, 0, 0, DateTimeKind.Utc).AddTicks(1234567);
    var given = new Dictionary<string, object>
    {
        ["int"] = 3, ["long"] = 3L, ["large"] = 5_000_000_000L, ["double"] = 0.5, ["text"] = "t", ["yes"] = true,
        ["when"] = when, ["span"] = TimeSpan.FromTicks(15), ["back"] = TimeSpan.FromTicks(-15),
    };
    var filter = new CorrelationRuleFilter();
    foreach (var (key, value) in given) filter.ApplicationProperties[key] = value;
    var sql = new SqlRuleFilter("a = @long") { Parameters = { ["@long"] = 3L } };
    var action = new SqlRuleAction("SET a = @when") { Parameters = { ["@when"] = when } };
    await Only(subscription, new CreateRuleOptions("exact", filter), new CreateRuleOptions("sql", sql) { Action = action });
    var found = (CorrelationRuleFilter)(await administration.GetRuleAsync($"{queue}-topic", subscription, "exact")).Value.Filter;
    foreach (var (key, value) in given)
    {
        Equal(value.GetType(), found.ApplicationProperties[key].GetType(), key);
        Equal(value, found.ApplicationProperties[key], key);
    }
    var rule = (await administration.GetRuleAsync($"{queue}-topic", subscription, "sql")).Value;
    Equal<object>(3L, ((SqlRuleFilter)rule.Filter).Parameters["@long"], "@long");
    Equal<object>(when, ((SqlRuleAction)rule.Action).Parameters["@when"], "@when");
}

// TimeSpan, DateTimeOffset and Uri its rule manager refuses itself.
async Task RulesByRuleManager()
{
    var subscription = await OwnSubscription("manager");
    await Only(subscription);
    await using var manager = client.CreateRuleManager($"{queue}-topic", subscription);
    var given = new Dictionary<string, object>
    {
        ["byte"] = (byte)1, ["sbyte"] = (sbyte)-1, ["short"] = (short)2, ["ushort"] = (ushort)3, ["int"] = 3,
        ["uint"] = 4u, ["long"] = 3L, ["ulong"] = 5ul, ["float"] = 0.5f, ["double"] = 0.5, ["decimal"] = 79.90m,
        ["char"] = 'c', ["text"] = "t", ["yes"] = true, ["guid"] = Guid.NewGuid(),
        ["when"] = new DateTime(2026, 1, 1, 0, 0, 0, DateTimeKind.Utc),
    };
    var filter = new CorrelationRuleFilter();
    foreach (var (key, value) in given) filter.ApplicationProperties[key] = value;
    await manager.CreateRuleAsync("exact", filter);
    await foreach (var rule in manager.GetRulesAsync())
    {
        var found = (CorrelationRuleFilter)rule.Filter;
        foreach (var (key, value) in given)
        {
            Equal(value.GetType(), found.ApplicationProperties[key].GetType(), key);
            Equal(value, found.ApplicationProperties[key], key);
        }
    }
    await manager.DeleteRuleAsync("exact");
    await manager.CreateRuleAsync("price", new CorrelationRuleFilter { ApplicationProperties = { ["p"] = 79.9m } });
    var message = new ServiceBusMessage("taken");
    message.ApplicationProperties["p"] = 79.90m;
    await using var sender = client.CreateSender($"{queue}-topic");
    await sender.SendMessageAsync(message);
    Equal("taken", (await Take($"{queue}-topic", subscription)).Body.ToString(), "the body");
    await manager.DeleteRuleAsync("price");
}

void Times(ServiceBusReceivedMessage found, TimeSpan ttl)
{
    Equal(ttl, found.TimeToLive, "TimeToLive");
    Equal(found.EnqueuedTime + ttl, found.ExpiresAt, "ExpiresAt");
}

async Task TimesOfACappedMessage()
{
    var queue = await Own("capped", TimeSpan.FromMinutes(1));
    await using var sender = client.CreateSender(queue);
    await sender.SendMessageAsync(new ServiceBusMessage("long") { TimeToLive = TimeSpan.FromDays(10) });
    Times(await Take(queue), TimeSpan.FromMinutes(1));
    await sender.SendMessageAsync(new ServiceBusMessage("none"));
    Times(await Take(queue), TimeSpan.FromMinutes(1));
}

async Task TimesOfAScheduledMessage()
{
    var queue = await Own("scheduled");
    await using var sender = client.CreateSender(queue);
    var message = new ServiceBusMessage("later") { TimeToLive = TimeSpan.FromHours(1) };
    await sender.ScheduleMessageAsync(message, DateTimeOffset.UtcNow.AddSeconds(3));
    Times(await Take(queue), TimeSpan.FromHours(1));
}

async Task TimesOfAPeek()
{
    var queue = await Own("peek", TimeSpan.FromMinutes(1));
    await using var sender = client.CreateSender(queue);
    await using var receiver = client.CreateReceiver(queue);
    await sender.SendMessageAsync(new ServiceBusMessage("own") { TimeToLive = TimeSpan.FromSeconds(50) });
    Times(await Peek(receiver), TimeSpan.FromSeconds(50));
    await Take(queue);
    await sender.SendMessageAsync(new ServiceBusMessage("none"));
    Equal(TimeSpan.MaxValue, (await Peek(receiver)).TimeToLive, "the TTL of the entity alone");
    await Take(queue);
}

async Task<ServiceBusReceivedMessage> Peek(ServiceBusReceiver receiver)
{
    var end = DateTime.UtcNow + patience;
    while (DateTime.UtcNow < end)
        if (await receiver.PeekMessageAsync(0) is { } found) return found;
    throw new InvalidOperationException("no message is seen");
}
