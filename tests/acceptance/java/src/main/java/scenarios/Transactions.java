package scenarios;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Transactions of the unmodified Java client; beside the queue there is QUEUE-other. */
final class Transactions {
    private final Scenarios on;
    private final ServiceBusClientBuilder builder;

    private Transactions(Scenarios on, boolean isAcross) {
        this.on = on;
        ServiceBusClientBuilder plain = Scenarios.builder(on.connectionString);
        this.builder = isAcross ? plain.enableCrossEntityTransactions() : plain;
    }

    private interface Step {
        String run(Transactions of) throws Exception;
    }

    public static void main(String[] args) {
        Map<String, Scenarios.Scenario> all = new LinkedHashMap<>();
        add(all, "commit", false, Transactions::commit);
        add(all, "rollback", false, Transactions::rollback);
        add(all, "every_settlement", false, Transactions::everySettlement);
        add(all, "deferred", false, Transactions::deferred);
        add(all, "schedule", false, Transactions::schedule);
        add(all, "of_another_client", false, Transactions::ofAnotherClient);
        add(all, "other_entity_refused", false, Transactions::otherEntityRefused);
        add(all, "across_entities", true, Transactions::acrossEntities);
        Scenarios.run(args, all);
    }

    private static void add(
        Map<String, Scenarios.Scenario> all, String name, boolean isAcross, Step step) {
        all.put(name, on -> step.run(new Transactions(on, isAcross)));
    }

    private ServiceBusSenderClient sender(String queue) {
        return on.track(builder.sender().queueName(queue).buildClient());
    }

    private ServiceBusReceiverClient receiver(String queue) {
        return on.track(builder.receiver().queueName(queue)
            .maxAutoLockRenewDuration(Duration.ZERO).disableAutoComplete().buildClient());
    }

    private ServiceBusReceiverClient apart(String queue) {
        return on.track(Scenarios.builder(on.connectionString).receiver().queueName(queue)
            .maxAutoLockRenewDuration(Duration.ZERO).disableAutoComplete().buildClient());
    }

    private static CompleteOptions completing(ServiceBusTransactionContext transaction) {
        return new CompleteOptions().setTransactionContext(transaction);
    }

    private void expectOnly(ServiceBusReceiverClient receiver, String body) {
        ServiceBusReceivedMessage message = Scenarios.receive(receiver, 1).get(0);
        Scenarios.equal(body, message.getBody().toString(), "body");
        receiver.complete(message);
        Scenarios.expectSilence(receiver);
    }

    private String commit() throws Exception {
        ServiceBusSenderClient sender = sender(on.queue);
        ServiceBusReceiverClient receiver = receiver(on.queue);
        sender.sendMessage(new ServiceBusMessage("order"));
        ServiceBusReceivedMessage order = Scenarios.receive(receiver, 1).get(0);
        ServiceBusTransactionContext transaction = sender.createTransaction();
        receiver.complete(order, completing(transaction));
        sender.sendMessage(new ServiceBusMessage("answer"), transaction);
        Scenarios.expectSilence(apart(on.queue));
        sender.commitTransaction(transaction);
        expectOnly(receiver, "answer");
        Thread.sleep(Scenarios.LOCK.toMillis() + 1_000);
        Scenarios.expectSilence(receiver);
        return "";
    }

    private String rollback() {
        ServiceBusSenderClient sender = sender(on.queue);
        ServiceBusReceiverClient receiver = receiver(on.queue);
        sender.sendMessage(new ServiceBusMessage("order"));
        ServiceBusReceivedMessage order = Scenarios.receive(receiver, 1).get(0);
        ServiceBusTransactionContext transaction = receiver.createTransaction();
        receiver.complete(order, completing(transaction));
        sender.sendMessage(new ServiceBusMessage("never"), transaction);
        receiver.rollbackTransaction(transaction);
        Scenarios.expectSilence(receiver);
        expectOnly(receiver, "order");
        return "";
    }

    private String everySettlement() {
        ServiceBusSenderClient sender = sender(on.queue);
        ServiceBusReceiverClient receiver = receiver(on.queue);
        sender.sendMessages(List.of(new ServiceBusMessage("abandoned"),
            new ServiceBusMessage("buried"), new ServiceBusMessage("deferred")));
        List<ServiceBusReceivedMessage> messages = Scenarios.receive(receiver, 3);
        ServiceBusTransactionContext transaction = sender.createTransaction();
        receiver.abandon(messages.get(0), new AbandonOptions()
            .setPropertiesToModify(Map.of("tried", 1)).setTransactionContext(transaction));
        receiver.deadLetter(messages.get(1), new DeadLetterOptions()
            .setDeadLetterReason("why").setTransactionContext(transaction));
        receiver.defer(messages.get(2), new DeferOptions().setTransactionContext(transaction));
        sender.commitTransaction(transaction);
        ServiceBusReceivedMessage again = Scenarios.receive(receiver, 1).get(0);
        Scenarios.equal("abandoned", again.getBody().toString(), "body");
        Scenarios.equal(1, again.getApplicationProperties().get("tried"), "changed property");
        receiver.complete(again);
        ServiceBusReceiverClient dead = on.track(builder.receiver().queueName(on.queue)
            .subQueue(SubQueue.DEAD_LETTER_QUEUE).disableAutoComplete().buildClient());
        ServiceBusReceivedMessage buried = Scenarios.receive(dead, 1).get(0);
        Scenarios.equal("why", buried.getDeadLetterReason(), "reason");
        dead.complete(buried);
        receiver.complete(
            receiver.receiveDeferredMessage(messages.get(2).getSequenceNumber()));
        Scenarios.expectSilence(receiver);
        return "";
    }

    private String deferred() {
        ServiceBusSenderClient sender = sender(on.queue);
        ServiceBusReceiverClient receiver = receiver(on.queue);
        sender.sendMessage(new ServiceBusMessage("order"));
        ServiceBusReceivedMessage order = Scenarios.receive(receiver, 1).get(0);
        receiver.defer(order);
        ServiceBusReceivedMessage found =
            receiver.receiveDeferredMessage(order.getSequenceNumber());
        ServiceBusTransactionContext transaction = sender.createTransaction();
        receiver.complete(found, completing(transaction));
        sender.sendMessage(new ServiceBusMessage("answer"), transaction);
        sender.commitTransaction(transaction);
        expectOnly(receiver, "answer");
        return "";
    }

    private String schedule() {
        ServiceBusSenderClient sender = sender(on.queue);
        ServiceBusReceiverClient receiver = receiver(on.queue);
        OffsetDateTime later = OffsetDateTime.now().plusHours(1);
        ServiceBusTransactionContext never = sender.createTransaction();
        Long first = sender.scheduleMessage(new ServiceBusMessage("never"), later, never);
        sender.rollbackTransaction(never);
        ServiceBusTransactionContext transaction = sender.createTransaction();
        Long number = sender.scheduleMessage(new ServiceBusMessage("later"), later, transaction);
        Scenarios.check(number > first, number + " after " + first);
        Scenarios.check(receiver.peekMessage(1) == null, "it is there before its commit");
        sender.commitTransaction(transaction);
        Scenarios.equal(number, receiver.peekMessage(1).getSequenceNumber(), "number");
        sender.cancelScheduledMessage(number);
        Scenarios.check(receiver.peekMessage(1) == null, "it is there behind its cancel");
        return "";
    }

    private String ofAnotherClient() {
        ServiceBusSenderClient sender = sender(on.queue);
        ServiceBusReceiverClient receiver = receiver(on.queue);
        sender.sendMessage(new ServiceBusMessage("order"));
        ServiceBusReceivedMessage order = Scenarios.receive(receiver, 1).get(0);
        ServiceBusTransactionContext none =
            new Transactions(on, false).sender(on.queue).createTransaction();
        String seen = refused(() -> receiver.complete(order, completing(none)), "");
        refused(() -> sender.commitTransaction(none), "");
        receiver.complete(order);
        return seen;
    }

    private String otherEntityRefused() {
        ServiceBusSenderClient sender = sender(on.queue);
        ServiceBusSenderClient other = sender(on.queue + "-other");
        ServiceBusTransactionContext transaction = sender.createTransaction();
        sender.sendMessage(new ServiceBusMessage("never"), transaction);
        String seen = "the client did not say that the send was refused";
        try {
            other.sendMessage(new ServiceBusMessage("never"), transaction);
        } catch (RuntimeException error) {
            seen = String.valueOf(error.getMessage());
        }
        refused(() -> sender.commitTransaction(transaction), "");
        Scenarios.expectSilence(receiver(on.queue));
        return seen;
    }

    private String acrossEntities() {
        ServiceBusReceiverClient receiver = receiver(on.queue);
        ServiceBusSenderClient other = sender(on.queue + "-other");
        ServiceBusSenderClient alone = on.track(
            Scenarios.builder(on.connectionString).sender().queueName(on.queue).buildClient());
        alone.sendMessage(new ServiceBusMessage("order"));
        ServiceBusReceivedMessage order = Scenarios.receive(receiver, 1).get(0);
        ServiceBusTransactionContext transaction = receiver.createTransaction();
        other.sendMessage(new ServiceBusMessage("answer"), transaction);
        receiver.complete(order, completing(transaction));
        receiver.commitTransaction(transaction);
        expectOnly(apart(on.queue + "-other"), "answer");
        Scenarios.expectSilence(receiver);
        return "";
    }

    private static String refused(Runnable action, String text) {
        try {
            action.run();
        } catch (RuntimeException error) {
            String seen = String.valueOf(error.getMessage());
            Scenarios.check(seen.contains(text), seen);
            return seen;
        }
        throw new AssertionError("it was not refused");
    }
}
