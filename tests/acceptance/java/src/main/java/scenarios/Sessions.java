package scenarios;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** The scenarios of sessions, on the queue QUEUE-sessions. */
final class Sessions {
    private final Scenarios on;
    private final String queue;

    private Sessions(Scenarios on) {
        this.on = on;
        this.queue = on.queue + "-sessions";
    }

    static void addTo(Map<String, Scenarios.Scenario> all) {
        all.put("session_accept", on -> new Sessions(on).accept());
        all.put("session_next", on -> new Sessions(on).next());
        all.put("session_state", on -> new Sessions(on).state());
        all.put("session_lock", on -> new Sessions(on).lock());
        all.put("session_defer", on -> new Sessions(on).defer());
        all.put("session_processor", on -> new Sessions(on).processor());
    }

    private String accept() {
        send("one", "a", "b", "c");
        ServiceBusReceiverClient receiver = on.track(sessions().acceptSession("one"));
        Scenarios.equal("one", receiver.getSessionId(), "session id");
        ServiceBusReceivedMessage first = Scenarios.receive(receiver, 1).get(0);
        Scenarios.equal("a", first.getBody().toString(), "first");
        String refused = refusalOf(() -> sessions().acceptSession("one"));
        Scenarios.check(refused.contains("cannot be accepted"), "refused: " + refused);
        receiver.abandon(first);
        List<ServiceBusReceivedMessage> messages = Scenarios.receive(receiver, 3);
        for (int i = 0; i < 3; i++) {
            Scenarios.equal(List.of("a", "b", "c").get(i), messages.get(i).getBody().toString(),
                "order");
        }
        Scenarios.equal(1L, messages.get(0).getDeliveryCount(), "delivery count");
        receiver.complete(messages.get(0));
        receiver.close();
        ServiceBusReceiverClient again = on.track(sessions().acceptSession("one"));
        for (ServiceBusReceivedMessage message : Scenarios.receive(again, 2)) {
            Scenarios.equal(0L, message.getDeliveryCount(), "delivery count after a close");
            again.complete(message);
        }
        again.close();
        return refused;
    }

    private String next() throws Exception {
        Thread later = new Thread(() -> {
            sleep(500);
            send("next", "x");
        });
        later.start();
        ServiceBusReceiverClient receiver = on.track(sessions().acceptNextSession());
        Scenarios.equal("next", receiver.getSessionId(), "session id");
        receiver.complete(Scenarios.receive(receiver, 1).get(0));
        receiver.close();
        later.join();
        return "";
    }

    private String state() {
        ServiceBusReceiverClient receiver = on.track(sessions().acceptSession("state"));
        byte[] first = receiver.getSessionState();
        Scenarios.check(first == null || first.length == 0, "no state at first");
        receiver.setSessionState("mine".getBytes());
        OffsetDateTime until = receiver.renewSessionLock();
        Scenarios.check(until.isAfter(OffsetDateTime.now().plusSeconds(3)), "renewed");
        receiver.close();
        ServiceBusReceiverClient again = on.track(sessions().acceptSession("state"));
        Scenarios.equal("mine", new String(again.getSessionState()), "state");
        again.setSessionState(null);
        byte[] last = again.getSessionState();
        Scenarios.check(last == null || last.length == 0, "no state in the end");
        again.close();
        return "";
    }

    private String lock() {
        send("lapses", "x");
        ServiceBusReceiverClient receiver = on.track(sessions().acceptSession("lapses"));
        ServiceBusReceivedMessage message = Scenarios.receive(receiver, 1).get(0);
        sleep(Scenarios.LOCK.toMillis() + 500);
        String lost = refusalOf(() -> receiver.complete(message));
        Scenarios.check(lost.contains("lock"), "refused: " + lost);
        ServiceBusReceiverClient again = on.track(sessions().acceptSession("lapses"));
        ServiceBusReceivedMessage second = Scenarios.receive(again, 1).get(0);
        Scenarios.equal(1L, second.getDeliveryCount(), "delivery count");
        again.complete(second);
        again.close();
        return lost;
    }

    private String defer() {
        send("defers", "later");
        ServiceBusReceiverClient receiver = on.track(sessions().acceptSession("defers"));
        ServiceBusReceivedMessage message = Scenarios.receive(receiver, 1).get(0);
        receiver.defer(message);
        receiver.close();
        ServiceBusReceiverClient again = on.track(sessions().acceptSession("defers"));
        ServiceBusReceivedMessage found = again.receiveDeferredMessage(message.getSequenceNumber());
        Scenarios.equal("later", found.getBody().toString(), "body");
        again.complete(found);
        again.close();
        return "";
    }

    /** Two sessions at a time; one that is idle is left for the next. */
    private String processor() throws Exception {
        for (int i = 0; i < 3; i++) {
            for (String session : List.of("p1", "p2", "p3")) {
                send(session, session + i);
            }
        }
        Map<String, List<String>> bodies = new ConcurrentHashMap<>();
        List<Throwable> errors = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch all = new CountDownLatch(9);
        ServiceBusProcessorClient processor = Scenarios.builder(on.connectionString)
            .sessionProcessor()
            .queueName(queue)
            .maxConcurrentSessions(2)
            .sessionIdleTimeout(Duration.ofSeconds(1))
            .processMessage(context -> {
                ServiceBusReceivedMessage message = context.getMessage();
                bodies.computeIfAbsent(message.getSessionId(),
                    key -> Collections.synchronizedList(new ArrayList<>()))
                    .add(message.getBody().toString());
                all.countDown();
            })
            .processError(context -> errors.add(context.getException()))
            .buildProcessorClient();
        try {
            processor.start();
            Scenarios.check(all.await(2, TimeUnit.MINUTES), "nine messages in time: " + bodies
                + " " + errors);
            sleep(500);
        } finally {
            processor.close();
        }
        for (String session : List.of("p1", "p2", "p3")) {
            List<String> expected = List.of(session + 0, session + 1, session + 2);
            Scenarios.equal(expected, bodies.get(session), "order");
        }
        return errors.toString();
    }

    private void send(String session, String... bodies) {
        ServiceBusSenderClient sender =
            Scenarios.builder(on.connectionString).sender().queueName(queue).buildClient();
        for (String body : bodies) {
            sender.sendMessage(new ServiceBusMessage(body).setSessionId(session));
        }
        sender.close();
    }

    private ServiceBusSessionReceiverClient sessions() {
        AmqpRetryOptions retries = new AmqpRetryOptions().setMaxRetries(0)
            .setTryTimeout(Duration.ofSeconds(10));
        return on.track(new ServiceBusClientBuilder().connectionString(on.connectionString)
            .retryOptions(retries).sessionReceiver().queueName(queue)
            .maxAutoLockRenewDuration(Duration.ZERO).disableAutoComplete().buildClient());
    }

    /** This client does not wrap every refusal into an exception of Service Bus. */
    private static String refusalOf(Runnable action) {
        try {
            action.run();
        } catch (RuntimeException error) {
            return String.valueOf(error.getMessage());
        }
        throw new AssertionError("not refused");
    }

    private static void sleep(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
