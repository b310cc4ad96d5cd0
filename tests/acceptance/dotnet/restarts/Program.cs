// A session processor with four slots, as an application has it; prints what it does, one JSON object a line:
// {"what": "begun" or "done", "body"} or {"what": "error", "body": its text}. Ends when its input does.
//
//   Restarts CONNECTION_STRING QUEUE
//
// It works for 3 s on a message whose body begins with "slow".
using System;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;
using Azure.Messaging.ServiceBus;

var ending = new TaskCompletionSource();
_ = Task.Run(() => { while (Console.In.Read() >= 0) { } ending.TrySetResult(); });
await using var client = new ServiceBusClient(args[0]);
await using var processor = client.CreateSessionProcessor(args[1], new ServiceBusSessionProcessorOptions
{
    AutoCompleteMessages = false, MaxConcurrentSessions = 4, SessionIdleTimeout = TimeSpan.FromSeconds(1),
});
processor.ProcessMessageAsync += async each =>
{
    var body = each.Message.Body.ToString();
    Say("begun", body);
    if (body.StartsWith("slow")) await Task.Delay(TimeSpan.FromSeconds(3));
    await each.CompleteMessageAsync(each.Message);
    Say("done", body);
};
processor.ProcessErrorAsync += each =>
{
    Say("error", $"{each.ErrorSource}: {each.Exception}");
    return Task.CompletedTask;
};
await processor.StartProcessingAsync();
await ending.Task;
await processor.StopProcessingAsync();

static void Say(string what, string body)
{
    var line = JsonSerializer.Serialize(new { what, body });
    lock (Console.Out) { Console.Out.WriteLine(line); Console.Out.Flush(); }
}
