package scenarios;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Map;

/** Clients with cross-entity transactions enabled: one AMQP session, behind a coordinator, that receives from one entity. */
final class CrossEntity {
    private final Scenarios on;
    private final ServiceBusClientBuilder builder;

    private CrossEntity(Scenarios on) {
        this.on = on;
        this.builder = crossing();
    }

    private ServiceBusClientBuilder crossing() {
        return Scenarios.builder(on.connectionString).enableCrossEntityTransactions();
    }

    static void addTo(Map<String, Scenarios.Scenario> all) {
        all.put("cross_entity", on -> new CrossEntity(on).plainUse());
    }

    private String plainUse() {
        ServiceBusReceiverClient receiver = on.track(builder.receiver().queueName(on.queue)
            .maxAutoLockRenewDuration(Duration.ZERO).disableAutoComplete().buildClient());
        ServiceBusSenderClient sender = sender();
        ServiceBusSenderClient other = on.track(
            builder.sender().queueName(on.queue + "-sessions").buildClient());
        sender.sendMessages(List.of(new ServiceBusMessage("a"), new ServiceBusMessage("b")));
        List<ServiceBusReceivedMessage> messages = Scenarios.receive(receiver, 2);
        other.sendMessage(new ServiceBusMessage("answer").setSessionId("cross"));
        receiver.abandon(messages.get(0));
        receiver.complete(messages.get(1));
        receiver.complete(Scenarios.receive(receiver, 1).get(0));
        long number = sender.scheduleMessage(
            new ServiceBusMessage("later"), OffsetDateTime.now().plusHours(1));
        sender.cancelScheduledMessage(number);
        ServiceBusReceiverClient session = on.track(crossing().sessionReceiver()
            .queueName(on.queue + "-sessions").disableAutoComplete().buildClient()
            .acceptSession("cross"));
        session.complete(Scenarios.receive(session, 1).get(0));
        return "";
    }

    private ServiceBusSenderClient sender() {
        return on.track(builder.sender().queueName(on.queue).buildClient());
    }
}
