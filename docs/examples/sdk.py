"""The unmodified Azure SDK against the bridge: send, receive, complete."""

import os

from azure.servicebus import ServiceBusClient, ServiceBusMessage

connection_string = os.environ["SERVICEBUS_CONNECTION_STRING"]
with ServiceBusClient.from_connection_string(connection_string) as client:
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("two apples", message_id="1"))
    with client.get_queue_receiver("orders", max_wait_time=5) as receiver:
        for message in receiver:
            print(message.sequence_number, message.enqueued_time_utc, str(message))
            receiver.complete_message(message)
