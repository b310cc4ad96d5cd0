// An AMQPNetLite client that sends single messages; prints its rate as JSON.
//
//   Singles HOST PORT USER PASSWORD ADDRESS COUNT IN_FLIGHT
using System;
using System.Diagnostics;
using System.Threading;
using Amqp;
using Amqp.Framing;

const int Warm = 200;
var (address, count, inFlight) = (args[4], int.Parse(args[5]), int.Parse(args[6]));
var connection = new Connection(new Address(args[0], int.Parse(args[1]), args[2], args[3], "/", "amqp"));
var session = new Session(connection);
var sender = new SenderLink(session, "singles", address);
var body = new byte[1024];

Send(Warm);
var clock = Stopwatch.StartNew();
Send(count);
var seconds = clock.Elapsed.TotalSeconds;
Console.WriteLine(FormattableString.Invariant($"{{\"rate\": {count / seconds}}}"));
connection.Close();

void Send(int messages)
{
    using var room = new SemaphoreSlim(inFlight);
    using var told = new CountdownEvent(messages);
    string? refused = null;
    for (var each = 0; each < messages; each++)
    {
        room.Wait();
        var message = new Message { BodySection = new Data { Binary = body }, Header = new Header { Durable = true } };
        sender.Send(message, (_, _, outcome, _) =>
        {
            if (outcome is not Accepted) refused = outcome?.ToString() ?? "nothing";
            room.Release();
            told.Signal();
        }, null);
    }
    told.Wait();
    if (refused != null) throw new Exception("a message was not accepted: " + refused);
}
