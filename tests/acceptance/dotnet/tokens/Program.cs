// Logs in with a credential of its own and works with the unmodified Azure.Messaging.ServiceBus.
//
//   SSL_CERT_FILE=ca.pem tokens HOST:PORT QUEUE [load]
//
// Prints one JSON object a scenario, {"scenario", "ok", "detail"}. As `load` it sends a message and completes it, again
// and again on the same two links, and prints {"round"} for each or {"error"} and begins anew; ends with its input.
// AUTHORITY, TENANT, APPLICATION and SECRET are the credential.
using System;
using System.Collections.Generic;
using System.Net.Http;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;
using Azure.Core;
using Azure.Core.Pipeline;
using Azure.Messaging.ServiceBus;
using Azure.Messaging.ServiceBus.Administration;

var (place, queue) = (args[0], args[1]);
var patience = TimeSpan.FromMinutes(1);
var credential = new ClientCredentials();
var host = place.Split(':')[0];

ServiceBusClient Client() => new(host, credential, new ServiceBusClientOptions
{
    CustomEndpointAddress = new Uri($"sb://{place}"),
    RetryOptions = new ServiceBusRetryOptions { MaxRetries = 0, TryTimeout = patience },
});

async Task Messages()
{
    await using var client = Client();
    await client.CreateSender(queue).SendMessageAsync(new ServiceBusMessage("hello"));
    var receiver = client.CreateReceiver(queue);
    var message = await receiver.ReceiveMessageAsync(patience);
    await receiver.RenewMessageLockAsync(message);
    await receiver.CompleteMessageAsync(message);
}

async Task Sessions()
{
    await using var client = Client();
    var name = $"{queue}-sessions";
    await client.CreateSender(name).SendMessageAsync(new ServiceBusMessage("hello") { SessionId = "one" });
    var receiver = await client.AcceptSessionAsync(name, "one");
    var message = await receiver.ReceiveMessageAsync(patience);
    await receiver.SetSessionStateAsync(new BinaryData("seen"));
    await receiver.CompleteMessageAsync(message);
}

async Task Administration()
{
    var options = new ServiceBusAdministrationClientOptions();
    options.AddPolicy(new PortPolicy(int.Parse(place.Split(':')[1])), HttpPipelinePosition.PerCall);
    var admin = new ServiceBusAdministrationClient(host, credential, options);
    var name = $"{queue}-made";
    QueueProperties made = await admin.CreateQueueAsync(new CreateQueueOptions(name) { ForwardTo = queue });
    made.MaxDeliveryCount = 3;
    await admin.UpdateQueueAsync(made);
    var isListed = false;
    await foreach (var each in admin.GetQueuesAsync()) isListed |= each.Name == name;
    if (!isListed) throw new InvalidOperationException($"{name} is not listed");
    await admin.DeleteQueueAsync(name);
}

void Say(object fact)
{
    Console.Out.WriteLine(JsonSerializer.Serialize(fact));
    Console.Out.Flush();
}

async Task Load()
{
    var ended = new CancellationTokenSource();
    _ = Task.Run(() => { while (Console.In.Read() >= 0) { } ended.Cancel(); });
    for (var count = 0; !ended.IsCancellationRequested;)
    {
        try
        {
            await using var client = Client();
            var sender = client.CreateSender(queue);
            var receiver = client.CreateReceiver(queue);
            while (!ended.IsCancellationRequested)
            {
                await sender.SendMessageAsync(new ServiceBusMessage($"{count}"));
                foreach (var message in await receiver.ReceiveMessagesAsync(1, patience))
                    await receiver.CompleteMessageAsync(message);
                Say(new Dictionary<string, object> { ["round"] = count++ });
                await Task.Delay(200);
            }
        }
        catch (Exception error)
        {
            Say(new Dictionary<string, object> { ["error"] = $"{error.GetType().Name}: {error.Message}" });
            await Task.Delay(1000);
        }
    }
}

if (args.Length > 2)
{
    await Load();
    return;
}
foreach (var (name, scenario) in new (string, Func<Task>)[]
    { ("messages", Messages), ("sessions", Sessions), ("administration", Administration) })
{
    var detail = "";
    try { await scenario(); } catch (Exception error) { detail = error.ToString(); }
    Say(new Dictionary<string, object> { ["scenario"] = name, ["ok"] = detail == "", ["detail"] = detail });
}

// With a credential the administration client goes to 443, and takes no port in its host.
class PortPolicy(int port) : HttpPipelineSynchronousPolicy
{
    public override void OnSendingRequest(HttpMessage message) => message.Request.Uri.Port = port;
}

// OAuth's client credentials at Entra's path; a token is used again until five minutes before its end, as Azure.Identity does.
class ClientCredentials : TokenCredential
{
    static readonly HttpClient Http = new();
    AccessToken kept;

    static string Given(string name) => Environment.GetEnvironmentVariable(name)!;

    public override async ValueTask<AccessToken> GetTokenAsync(TokenRequestContext asked, CancellationToken ending)
    {
        if (kept.ExpiresOn > DateTimeOffset.UtcNow.AddMinutes(5)) return kept;
        var form = new FormUrlEncodedContent(new Dictionary<string, string>
        {
            ["grant_type"] = "client_credentials", ["client_id"] = Given("APPLICATION"),
            ["client_secret"] = Given("SECRET"), ["scope"] = string.Join(' ', asked.Scopes),
        });
        var answer = await Http.PostAsync($"{Given("AUTHORITY")}/{Given("TENANT")}/oauth2/v2.0/token", form, ending);
        answer.EnsureSuccessStatusCode();
        using var document = JsonDocument.Parse(await answer.Content.ReadAsStringAsync(ending));
        var lifetime = document.RootElement.GetProperty("expires_in").GetInt32();
        return kept = new AccessToken(
            document.RootElement.GetProperty("access_token").GetString()!, DateTimeOffset.UtcNow.AddSeconds(lifetime));
    }

    public override AccessToken GetToken(TokenRequestContext asked, CancellationToken ending) =>
        GetTokenAsync(asked, ending).AsTask().GetAwaiter().GetResult();
}
