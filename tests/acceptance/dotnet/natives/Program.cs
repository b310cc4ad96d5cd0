// Publishes with the unmodified RabbitMQ.Client, confirms tracked, and prints one JSON object a
// scenario: {"scenario", "ok", "detail"}.
//
//   natives AMQP_URL EXCHANGE
//
// publish: a message with a header of each type. refused: types that the client itself refuses.
using System;
using System.Collections.Generic;
using System.Text.Json;
using System.Threading.Tasks;
using RabbitMQ.Client;

var (url, exchange) = (args[0], args[1]);
await using var connection = await new ConnectionFactory { Uri = new Uri(url) }.CreateConnectionAsync();
await using var channel = await connection.CreateChannelAsync(new CreateChannelOptions(
    publisherConfirmationsEnabled: true, publisherConfirmationTrackingEnabled: true));

await Run("publish", () => Publish(new()
{
    ["price"] = 79.90m, ["debt"] = -79.90m, ["small"] = -0.01m, ["text"] = "t", ["long"] = 3L,
    ["raw"] = new byte[] { 0xff, 0x00 }, ["when"] = new AmqpTimestamp(1_700_000_000),
}));
await Run("refused", async () =>
{
    foreach (var value in new object[]
    {
        ulong.MaxValue, TimeSpan.FromSeconds(1), DateTimeOffset.UtcNow, new Uri("http://x"), Guid.NewGuid(),
        decimal.MaxValue,
    })
    {
        try { await Publish(new() { ["odd"] = value }); }
        catch (Exception) { continue; }
        throw new InvalidOperationException($"a header may be a {value.GetType().Name}");
    }
});

async Task Publish(Dictionary<string, object?> headers) =>
    await channel.BasicPublishAsync(exchange, "", true, new BasicProperties { Headers = headers }, new byte[1]);

async Task Run(string name, Func<Task> scenario)
{
    string? detail = null;
    try { await scenario(); }
    catch (Exception error) { detail = error.ToString(); }
    Console.WriteLine(JsonSerializer.Serialize(new { scenario = name, ok = detail is null, detail = detail ?? "" }));
}
