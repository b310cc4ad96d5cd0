// The unmodified Azure SDK against the bridge: send, receive, complete.
import { ServiceBusClient } from "@azure/service-bus";

const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING);

await client.createSender("orders").sendMessages({ body: "two pears", messageId: "2" });
const receiver = client.createReceiver("orders");
for (const message of await receiver.receiveMessages(10, { maxWaitTimeInMs: 5000 })) {
  console.log(message.sequenceNumber.toString(), message.enqueuedTimeUtc, message.body);
  await receiver.completeMessage(message);
}
await client.close();
