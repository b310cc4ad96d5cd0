// One of .NET's clients at one kind of work; prints "ready", awaits a line, works, and prints its rate as JSON.
//
//   Clients CLIENT WORK HOST PORT USER PASSWORD ADDRESS COUNT
//
// CLIENT is azure (Azure.Messaging.ServiceBus), rabbitmq (RabbitMQ.Client) or amqpnetlite. WORK is send-1 (one at a
// time), send-100 (as many in flight), batches (of 100), receive (100 at a time, each completed) or process (a
// processor of 20 calls with 200 prefetched). Before "ready" the client has warmed up, and has sent what it receives.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Threading;
using System.Threading.Tasks;
using Amqp;
using Amqp.Framing;
using Azure.Messaging.ServiceBus;
using RabbitMQ.Client;
using RabbitMQ.Client.Events;

const int Warm = 200;
var (work, count) = (args[1], int.Parse(args[7]));
var place = new Place(args[2], int.Parse(args[3]), args[4], args[5], args[6]);
IWorker worker = args[0] switch
{
    "azure" => new AzureWorker(place),
    "rabbitmq" => await RabbitWorker.Open(place),
    "amqpnetlite" => new NetLiteWorker(place),
    _ => throw new ArgumentException(args[0]),
};
Func<int, Task> act = work switch
{
    "send-1" => messages => worker.Send(messages, 1),
    "send-100" => messages => worker.Send(messages, 100),
    "batches" => worker.SendBatches,
    "receive" => worker.Receive,
    "process" => worker.Process,
    _ => throw new ArgumentException(work),
};
if (work is "receive" or "process")
{
    await worker.Send(count + Warm, 100);
    await worker.Receive(Warm);
}
else await act(Warm);

Console.WriteLine("ready");
Console.ReadLine();
var used = Process.GetCurrentProcess().TotalProcessorTime;
var clock = Stopwatch.StartNew();
await act(count);
var seconds = clock.Elapsed.TotalSeconds;
var client_us = (Process.GetCurrentProcess().TotalProcessorTime - used).TotalMicroseconds / count;
Console.WriteLine(FormattableString.Invariant($"{{\"rate\": {count / seconds}, \"client_us\": {client_us}}}"));
await worker.Close();

record Place(string Host, int Port, string User, string Password, string Address);

interface IWorker
{
    Task Send(int count, int inFlight);
    Task SendBatches(int count);
    Task Receive(int count);
    Task Process(int count);
    Task Close();
}

static class Work
{
    public const int Together = 100, Calls = 20, Prefetched = 200;
    public static readonly byte[] Body = new byte[1024];

    // Sends messages, so many in flight; the first failure ends it.
    public static async Task InFlight(int count, int inFlight, Func<Task> send)
    {
        using var room = new SemaphoreSlim(inFlight);
        var all = new List<Task>(count);
        for (var each = 0; each < count; each++)
        {
            await room.WaitAsync();
            all.Add(Sent());
        }
        await Task.WhenAll(all);

        async Task Sent()
        {
            try { await send(); } finally { room.Release(); }
        }
    }
}

// Counts what is done; `All` ends with the last.
class Count(int wanted)
{
    int done;
    readonly TaskCompletionSource all = new(TaskCreationOptions.RunContinuationsAsynchronously);

    public Task All => all.Task;
    public void Failed(Exception error) => all.TrySetException(error);

    public void Done()
    {
        if (Interlocked.Increment(ref done) == wanted) all.TrySetResult();
    }
}

class AzureWorker : IWorker
{
    readonly string queue;
    readonly ServiceBusClient client;
    readonly ServiceBusSender sender;
    readonly ServiceBusReceiver receiver;

    public AzureWorker(Place place)
    {
        queue = place.Address;
        client = new ServiceBusClient($"Endpoint=sb://{place.Host}:{place.Port};SharedAccessKeyName={place.User};"
            + $"SharedAccessKey={place.Password};UseDevelopmentEmulator=true;");
        sender = client.CreateSender(queue);
        receiver = client.CreateReceiver(queue);
    }

    static ServiceBusMessage Message() => new(Work.Body);

    public Task Send(int count, int inFlight) =>
        Work.InFlight(count, inFlight, () => sender.SendMessageAsync(Message()));

    public async Task SendBatches(int count)
    {
        for (var sent = 0; sent < count; sent += Work.Together)
            await sender.SendMessagesAsync(Enumerable.Range(0, Work.Together).Select(_ => Message()));
    }

    public async Task Receive(int count)
    {
        for (var received = 0; received < count;)
        {
            var most = Math.Min(Work.Together, count - received);
            var messages = await receiver.ReceiveMessagesAsync(most, TimeSpan.FromSeconds(60));
            if (messages.Count == 0) throw new TimeoutException("nothing has come");
            await Task.WhenAll(messages.Select(each => receiver.CompleteMessageAsync(each)));
            received += messages.Count;
        }
    }

    public async Task Process(int count)
    {
        var counted = new Count(count);
        await using var processor = client.CreateProcessor(queue, new ServiceBusProcessorOptions
        {
            MaxConcurrentCalls = Work.Calls, PrefetchCount = Work.Prefetched, AutoCompleteMessages = false,
        });
        processor.ProcessMessageAsync += async each =>
        {
            await each.CompleteMessageAsync(each.Message);
            counted.Done();
        };
        processor.ProcessErrorAsync += each =>
        {
            counted.Failed(each.Exception);
            return Task.CompletedTask;
        };
        await processor.StartProcessingAsync();
        await counted.All;
    }

    public async Task Close() => await client.DisposeAsync();
}

class RabbitWorker(RabbitMQ.Client.IConnection connection, IChannel sending, string queue) : IWorker
{
    static readonly BasicProperties Persistent = new() { Persistent = true };

    public static async Task<RabbitWorker> Open(Place place)
    {
        var factory = new RabbitMQ.Client.ConnectionFactory
        {
            HostName = place.Host, Port = place.Port, UserName = place.User, Password = place.Password,
        };
        var connection = await factory.CreateConnectionAsync();
        var confirming = new CreateChannelOptions(
            publisherConfirmationsEnabled: true, publisherConfirmationTrackingEnabled: true);
        return new RabbitWorker(connection, await connection.CreateChannelAsync(confirming), place.Address);
    }

    // Ends when RabbitMQ has confirmed the message.
    Task Publish() => sending.BasicPublishAsync("", queue, true, Persistent, Work.Body).AsTask();

    public Task Send(int count, int inFlight) => Work.InFlight(count, inFlight, Publish);

    public async Task SendBatches(int count)
    {
        for (var sent = 0; sent < count; sent += Work.Together)
            await Task.WhenAll(Enumerable.Range(0, Work.Together).Select(_ => Publish()));
    }

    public Task Receive(int count) => Consume(count, Work.Together, 1);
    public Task Process(int count) => Consume(count, Work.Prefetched, Work.Calls);

    async Task Consume(int count, int prefetched, int calls)
    {
        var counted = new Count(count);
        var options = new CreateChannelOptions(false, false, consumerDispatchConcurrency: (ushort)calls);
        await using var channel = await connection.CreateChannelAsync(options);
        await channel.BasicQosAsync(0, (ushort)prefetched, false);
        var consumer = new AsyncEventingBasicConsumer(channel);
        var taken = 0;
        consumer.ReceivedAsync += async (_, each) =>
        {
            if (Interlocked.Increment(ref taken) > count) return;  // the channel's end gives it back
            await channel.BasicAckAsync(each.DeliveryTag, false);
            counted.Done();
        };
        var tag = await channel.BasicConsumeAsync(queue, false, consumer);
        await counted.All;
        await channel.BasicCancelAsync(tag);
        await channel.QueueDeclarePassiveAsync(queue);  // answered when the acks before it are done
    }

    public async Task Close() => await connection.DisposeAsync();
}

class NetLiteWorker : IWorker
{
    readonly Connection connection;
    readonly Session session;
    readonly SenderLink sender;
    readonly string address;
    int receivers;

    public NetLiteWorker(Place place)
    {
        address = place.Address;
        connection = new Connection(new Address(place.Host, place.Port, place.User, place.Password, "/", "amqp"));
        session = new Session(connection);
        sender = new SenderLink(session, "sender", address);
    }

    public Task Send(int count, int inFlight) => Work.InFlight(count, inFlight, () =>
    {
        var sent = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        var message = new Message
        {
            BodySection = new Data { Binary = Work.Body }, Header = new Header { Durable = true },
        };
        sender.Send(message, (_, _, outcome, _) =>
        {
            if (outcome is Accepted) sent.TrySetResult();
            else sent.TrySetException(new Exception($"not accepted: {outcome}"));
        }, null);
        return sent.Task;
    });

    public Task SendBatches(int count) => throw new NotSupportedException();

    public async Task Receive(int count)
    {
        var receiver = new ReceiverLink(session, $"receiver-{receivers++}", address);
        for (var received = 0; received < count;)
        {
            var most = Math.Min(Work.Together, count - received);
            receiver.SetCredit(most, false);
            var messages = new List<Message>();
            while (messages.Count < most)
                messages.Add(await receiver.ReceiveAsync(TimeSpan.FromSeconds(60))
                    ?? throw new TimeoutException("nothing has come"));
            messages.ForEach(receiver.Accept);
            received += most;
        }
        await receiver.CloseAsync();
    }

    public async Task Process(int count)
    {
        var counted = new Count(count);
        var receiver = new ReceiverLink(session, $"receiver-{receivers++}", address);
        receiver.Start(Work.Prefetched, (link, message) =>
        {
            link.Accept(message);
            counted.Done();
        });
        await counted.All;
        await receiver.CloseAsync();
    }

    public Task Close() => connection.CloseAsync();
}
