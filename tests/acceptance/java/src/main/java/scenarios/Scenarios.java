package scenarios;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.models.AmqpAnnotatedMessage;
import com.azure.core.amqp.models.AmqpMessageBody;
import com.azure.core.amqp.models.AmqpMessageBodyType;
import com.azure.core.util.BinaryData;
import com.azure.core.util.IterableStream;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Runs named scenarios of the unmodified Java client against a connection string and prints one
 * JSON object a scenario: {"scenario", "ok", "detail"}.
 *
 * <p>Arguments: CONNECTION_STRING QUEUE [SCENARIO...]. The queue must be empty, with a lock
 * duration of 5 s and at least 10 deliveries; there is another, QUEUE-sessions, that requires
 * sessions.
 */
public final class Scenarios {
    static final Duration LOCK = Duration.ofSeconds(5);
    private static final Duration PATIENCE = Duration.ofMinutes(2);
    private static final Duration SILENCE = Duration.ofSeconds(1);

    final String connectionString;
    final String queue;
    private final List<AutoCloseable> open = new ArrayList<>();

    private Scenarios(String connectionString, String queue) {
        this.connectionString = connectionString;
        this.queue = queue;
    }

    interface Scenario {
        String run(Scenarios on) throws Exception;
    }

    private static Map<String, Scenario> scenarios() {
        Map<String, Scenario> all = new LinkedHashMap<>();
        all.put("single_send", Scenarios::singleSend);
        all.put("batch_send", Scenarios::batchSend);
        all.put("list_send", Scenarios::listSend);
        all.put("processor", Scenarios::processor);
        all.put("abandon", Scenarios::abandon);
        all.put("abandon_with_properties", Scenarios::abandonWithProperties);
        all.put("dead_letter", Scenarios::deadLetter);
        all.put("dead_letter_without_reason", Scenarios::deadLetterWithoutReason);
        all.put("defer", Scenarios::defer);
        all.put("peek", Scenarios::peek);
        all.put("close_with_unsettled", Scenarios::closeWithUnsettled);
        all.put("settle_after_close", Scenarios::settleAfterClose);
        all.put("renew_lock", Scenarios::renewLock);
        all.put("lock_lost", Scenarios::lockLost);
        all.put("schedule", Scenarios::schedule);
        all.put("schedule_cancel", Scenarios::scheduleCancel);
        all.put("cancel_unknown", Scenarios::cancelUnknown);
        all.put("scheduled_by_property", Scenarios::scheduledByProperty);
        all.put("receive_and_delete", Scenarios::receiveAndDelete);
        all.put("time_to_live", Scenarios::timeToLive);
        all.put("types", Scenarios::types);
        all.put("large", Scenarios::large);
        all.put("too_large", Scenarios::tooLarge);
        all.put("wrong_key", Scenarios::wrongKey);
        all.put("unknown_entity", Scenarios::unknownEntity);
        Sessions.addTo(all);
        CrossEntity.addTo(all);
        return all;
    }

    private String singleSend() {
        OffsetDateTime before = OffsetDateTime.now(ZoneOffset.UTC);
        sender().sendMessage(new ServiceBusMessage("hello").setMessageId("m1"));
        ServiceBusReceiverClient receiver = receiver();
        ServiceBusReceivedMessage message = receive(receiver, 1).get(0);
        equal("hello", message.getBody().toString(), "body");
        equal("m1", message.getMessageId(), "message id");
        equal(0L, message.getDeliveryCount(), "delivery count");
        check(message.getSequenceNumber() > 0, "sequence number");
        OffsetDateTime enqueued = message.getEnqueuedTime();
        check(enqueued.isAfter(before.minusSeconds(1)), "enqueued before the send");
        check(!enqueued.isAfter(OffsetDateTime.now(ZoneOffset.UTC)), "enqueued later");
        check(message.getLockedUntil().isAfter(OffsetDateTime.now()), "locked until");
        receiver.complete(message);
        expectSilence(receiver);
        return "";
    }

    private String batchSend() {
        ServiceBusSenderClient sender = sender();
        ServiceBusMessageBatch batch = sender.createMessageBatch();
        for (int i = 0; i < 10; i++) {
            check(batch.tryAddMessage(new ServiceBusMessage("b" + i)), "room in the batch");
        }
        sender.sendMessages(batch);
        ServiceBusReceiverClient receiver = receiver();
        List<ServiceBusReceivedMessage> messages = receive(receiver, 10);
        for (int i = 0; i < 10; i++) {
            equal("b" + i, messages.get(i).getBody().toString(), "order");
            long number = messages.get(0).getSequenceNumber() + i;
            equal(number, messages.get(i).getSequenceNumber(), "sequence number");
            receiver.complete(messages.get(i));
        }
        expectSilence(receiver);
        return "";
    }

    private String listSend() {
        List<ServiceBusMessage> sent = new ArrayList<>();
        for (String body : List.of("a", "b", "c")) {
            sent.add(new ServiceBusMessage(body));
        }
        sender().sendMessages(sent);
        ServiceBusReceiverClient receiver = receiver();
        List<String> bodies = new ArrayList<>();
        for (ServiceBusReceivedMessage message : receive(receiver, 3)) {
            bodies.add(message.getBody().toString());
            receiver.complete(message);
        }
        equal(List.of("a", "b", "c"), bodies, "bodies");
        return "";
    }

    private String processor() throws Exception {
        ServiceBusSenderClient sender = sender();
        for (int i = 0; i < 5; i++) {
            sender.sendMessage(new ServiceBusMessage("p" + i));
        }
        Set<String> bodies = ConcurrentHashMap.newKeySet();
        List<Throwable> errors = new ArrayList<>();
        CountDownLatch all = new CountDownLatch(5);
        ServiceBusProcessorClient processor = builder(connectionString).processor()
            .queueName(queue)
            .maxConcurrentCalls(2)
            .processMessage(context -> {
                bodies.add(context.getMessage().getBody().toString());
                all.countDown();
            })
            .processError(context -> errors.add(context.getException()))
            .buildProcessorClient();
        try {
            processor.start();
            check(all.await(2, TimeUnit.MINUTES), "five messages in time");
            Thread.sleep(500);
        } finally {
            processor.close();
        }
        equal(Set.of("p0", "p1", "p2", "p3", "p4"), bodies, "bodies");
        equal(List.of(), errors, "errors");
        expectSilence(receiver());
        return "";
    }

    private String abandon() {
        sender().sendMessage(new ServiceBusMessage("again"));
        ServiceBusReceiverClient receiver = receiver();
        ServiceBusReceivedMessage first = receive(receiver, 1).get(0);
        equal(0L, first.getDeliveryCount(), "first delivery count");
        receiver.abandon(first);
        ServiceBusReceivedMessage second = receive(receiver, 1).get(0);
        equal(1L, second.getDeliveryCount(), "second delivery count");
        equal(first.getSequenceNumber(), second.getSequenceNumber(), "sequence number");
        receiver.complete(second);
        return "";
    }

    private String abandonWithProperties() {
        ServiceBusMessage sent = new ServiceBusMessage("again");
        sent.getApplicationProperties().put("kept", "yes");
        sent.getApplicationProperties().put("changed", "old");
        sender().sendMessage(sent);
        ServiceBusReceiverClient receiver = receiver();
        ServiceBusReceivedMessage first = receive(receiver, 1).get(0);
        AbandonOptions options = new AbandonOptions();
        options.setPropertiesToModify(Map.of("changed", "new", "added", 7));
        receiver.abandon(first, options);
        ServiceBusReceivedMessage second = receive(receiver, 1).get(0);
        equal(1L, second.getDeliveryCount(), "delivery count");
        Map<String, Object> expected = Map.of("kept", "yes", "changed", "new", "added", 7);
        equal(expected, second.getApplicationProperties(), "properties");
        receiver.complete(second);
        return "";
    }

    private String deadLetter() {
        ServiceBusMessage sent = new ServiceBusMessage("bad");
        sent.getApplicationProperties().put("a", 1);
        sender().sendMessage(sent);
        ServiceBusReceiverClient receiver = receiver();
        ServiceBusReceivedMessage message = receive(receiver, 1).get(0);
        receiver.deadLetter(message, new DeadLetterOptions()
            .setDeadLetterReason("no good")
            .setDeadLetterErrorDescription("it was\nreally bad ☃")
            .setPropertiesToModify(Map.of("extra", "x")));
        expectSilence(receiver);
        ServiceBusReceiverClient dead = deadLetters();
        ServiceBusReceivedMessage found = receive(dead, 1).get(0);
        equal("bad", found.getBody().toString(), "body");
        equal("no good", found.getDeadLetterReason(), "reason");
        equal("it was\nreally bad ☃", found.getDeadLetterErrorDescription(), "description");
        equal(1, found.getApplicationProperties().get("a"), "own property");
        equal("x", found.getApplicationProperties().get("extra"), "added property");
        dead.complete(found);
        expectSilence(dead);
        return "";
    }

    private String deadLetterWithoutReason() {
        sender().sendMessage(new ServiceBusMessage("bad"));
        ServiceBusReceiverClient receiver = receiver();
        receiver.deadLetter(receive(receiver, 1).get(0));
        ServiceBusReceiverClient dead = deadLetters();
        ServiceBusReceivedMessage found = receive(dead, 1).get(0);
        equal("bad", found.getBody().toString(), "body");
        dead.complete(found);
        return "";
    }

    /** A deferred message is received by its number, and completed. */
    private String defer() {
        sender().sendMessage(new ServiceBusMessage("later"));
        ServiceBusReceiverClient receiver = receiver();
        ServiceBusReceivedMessage message = receive(receiver, 1).get(0);
        receiver.defer(message);
        ServiceBusReceivedMessage deferred = receiver.receiveDeferredMessage(
            message.getSequenceNumber());
        equal("later", deferred.getBody().toString(), "body");
        receiver.complete(deferred);
        return "deferred and received by number";
    }

    /** A message is peeked until it is settled. */
    private String peek() {
        sender().sendMessage(new ServiceBusMessage("seen"));
        ServiceBusReceiverClient receiver = receiver();
        ServiceBusReceivedMessage peeked = receiver.peekMessage();
        equal("seen", peeked.getBody().toString(), "body");
        ServiceBusReceivedMessage message = receive(receiver, 1).get(0);
        long number = message.getSequenceNumber();
        equal(number, peeked.getSequenceNumber(), "number");
        equal(number, receiver.peekMessage(number).getSequenceNumber(), "locked");
        receiver.complete(message);
        equal(0L, receiver.peekMessages(5, number).stream().count(), "messages that are left");
        return "peeked until it was settled";
    }

    /** One of two is settled; what is left comes back, at the latest when its lock ends. */
    private String closeWithUnsettled() {
        sender().sendMessages(List.of(new ServiceBusMessage("one"), new ServiceBusMessage("two")));
        ServiceBusReceiverClient leaving = receiver();
        List<ServiceBusReceivedMessage> messages = receive(leaving, 2);
        leaving.complete(messages.get(0));
        leaving.close();
        ServiceBusReceiverClient receiver = receiver();
        ServiceBusReceivedMessage back = receive(receiver, 1).get(0);
        equal("two", back.getBody().toString(), "body");
        equal(messages.get(1).getSequenceNumber(), back.getSequenceNumber(), "sequence number");
        receiver.complete(back);
        return "delivery count " + back.getDeliveryCount();
    }

    private String settleAfterClose() throws Exception {
        sender().sendMessage(new ServiceBusMessage("mine"));
        ServiceBusReceiverClient first = receiver();
        ServiceBusReceivedMessage message = receive(first, 1).get(0);
        ServiceBusReceiverClient receiver = receiver();
        receiver.complete(message);
        Thread.sleep(LOCK.toMillis());
        expectSilence(receiver);
        return "";
    }

    private String renewLock() throws Exception {
        sender().sendMessage(new ServiceBusMessage("long work"));
        ServiceBusReceiverClient receiver = receiver();
        ServiceBusReceivedMessage message = receive(receiver, 1).get(0);
        OffsetDateTime until = message.getLockedUntil();
        Thread.sleep(LOCK.toMillis() * 6 / 10);
        long gained = ChronoUnit.MILLIS.between(until, receiver.renewMessageLock(message));
        check(gained >= LOCK.toMillis() / 2, "renewed by " + gained + " ms");
        Thread.sleep(LOCK.toMillis() * 7 / 10);
        receiver.complete(message);
        expectSilence(receiver);
        return "";
    }

    private String lockLost() throws Exception {
        sender().sendMessage(new ServiceBusMessage("too slow"));
        ServiceBusReceiverClient receiver = receiver();
        ServiceBusReceivedMessage message = receive(receiver, 1).get(0);
        Thread.sleep(LOCK.toMillis() + 500);
        String detail = expectError(ServiceBusFailureReason.MESSAGE_LOCK_LOST,
            () -> receiver.complete(message));
        expectError(ServiceBusFailureReason.MESSAGE_LOCK_LOST,
            () -> receiver.renewMessageLock(message));
        ServiceBusReceivedMessage again = receive(receiver, 1).get(0);
        equal(1L, again.getDeliveryCount(), "delivery count");
        receiver.complete(again);
        return detail;
    }

    private String schedule() {
        OffsetDateTime due = nowMillis().plusSeconds(3);
        long number = sender().scheduleMessage(new ServiceBusMessage("later"), due);
        ServiceBusReceiverClient receiver = receiver();
        ServiceBusReceivedMessage message = receive(receiver, 1).get(0);
        check(!OffsetDateTime.now().isBefore(due), "early");
        check(message.getSequenceNumber() > number, "a new number at activation");
        equal(due, message.getScheduledEnqueueTime(), "scheduled enqueue time");
        check(!message.getEnqueuedTime().isBefore(due), "enqueued when due");
        receiver.complete(message);
        return "";
    }

    private String scheduleCancel() throws Exception {
        ServiceBusSenderClient sender = sender();
        OffsetDateTime due = nowMillis().plusSeconds(2);
        List<Long> numbers = new ArrayList<>();
        sender.scheduleMessages(
            List.of(new ServiceBusMessage("never"), new ServiceBusMessage("ever")), due)
            .forEach(numbers::add);
        equal(2, numbers.size(), "numbers");
        sender.cancelScheduledMessages(numbers);
        Thread.sleep(2000);
        expectSilence(receiver());
        return "";
    }

    /** This client takes message-not-found for "nothing there"; the call must just end. */
    private String cancelUnknown() {
        sender().cancelScheduledMessage(987654321L);
        return "";
    }

    private String scheduledByProperty() {
        OffsetDateTime due = nowMillis().plusSeconds(2);
        sender().sendMessage(new ServiceBusMessage("p").setScheduledEnqueueTime(due));
        ServiceBusReceiverClient receiver = receiver();
        ServiceBusReceivedMessage message = receive(receiver, 1).get(0);
        check(!OffsetDateTime.now().isBefore(due), "early");
        check(!message.getEnqueuedTime().isBefore(due), "enqueued when due");
        receiver.complete(message);
        return "";
    }

    private String receiveAndDelete() throws Exception {
        sender().sendMessages(List.of(new ServiceBusMessage("1"), new ServiceBusMessage("2")));
        ServiceBusReceiverClient receiver = track(receiverBuilder()
            .receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient());
        List<ServiceBusReceivedMessage> messages = receive(receiver, 2);
        equal("1", messages.get(0).getBody().toString(), "first");
        equal("2", messages.get(1).getBody().toString(), "second");
        receiver.close();
        Thread.sleep(LOCK.toMillis());
        expectSilence(receiver());
        return "";
    }

    private String timeToLive() throws Exception {
        ServiceBusSenderClient sender = sender();
        sender.sendMessage(new ServiceBusMessage("short").setTimeToLive(Duration.ofSeconds(1)));
        sender.sendMessage(new ServiceBusMessage("long").setTimeToLive(Duration.ofHours(1)));
        Thread.sleep(1500);
        ServiceBusReceiverClient receiver = receiver();
        ServiceBusReceivedMessage message = receive(receiver, 1).get(0);
        equal("long", message.getBody().toString(), "body");
        equal(Duration.ofHours(1), message.getTimeToLive(), "time to live");
        equal(message.getEnqueuedTime().plusHours(1), message.getExpiresAt(), "expires at");
        receiver.complete(message);
        expectSilence(receiver);
        return "";
    }

    private String types() {
        Map<String, Object> properties = new HashMap<>();
        properties.put("string", "ä☃");
        properties.put("boolean", true);
        properties.put("byte", (byte) -7);
        properties.put("short", (short) -700);
        properties.put("int", -70000);
        properties.put("long", -7000000000L);
        properties.put("float", 1.5f);
        properties.put("double", 2.25);
        properties.put("char", 'x');
        properties.put("uuid", UUID.fromString("00112233-4455-6677-8899-aabbccddeeff"));
        properties.put("date", new Date(1795226000123L));
        properties.put("nothing", null);
        ServiceBusMessage first = new ServiceBusMessage(BinaryData.fromBytes(new byte[] {0, -1, 9}))
            .setMessageId("id-1").setCorrelationId("corr").setContentType("text/plain")
            .setSubject("sub").setTo("to").setReplyTo("reply").setPartitionKey("k");
        first.getApplicationProperties().putAll(properties);
        ServiceBusMessage value = new ServiceBusMessage(AmqpMessageBody.fromValue(42L));
        ServiceBusMessage sequence = new ServiceBusMessage(
            AmqpMessageBody.fromSequence(Arrays.asList(1, "two", 3.0)));
        ServiceBusSenderClient sender = sender();
        sender.sendMessage(first);
        sender.sendMessage(value);
        sender.sendMessage(sequence);
        ServiceBusReceiverClient receiver = receiver();
        List<ServiceBusReceivedMessage> got = receive(receiver, 3);
        got.forEach(receiver::complete);
        check(Arrays.equals(new byte[] {0, -1, 9}, got.get(0).getBody().toBytes()), "data body");
        Map<String, Object> found = got.get(0).getApplicationProperties();
        equal(properties.keySet(), found.keySet(), "names of the properties");
        properties.forEach((name, expected) -> equal(expected, found.get(name), name));
        equal("id-1", got.get(0).getMessageId(), "message id");
        equal("corr", got.get(0).getCorrelationId(), "correlation id");
        equal("text/plain", got.get(0).getContentType(), "content type");
        equal("sub", got.get(0).getSubject(), "subject");
        equal("to", got.get(0).getTo(), "to");
        equal("reply", got.get(0).getReplyTo(), "reply to");
        equal("k", got.get(0).getPartitionKey(), "partition key");
        AmqpAnnotatedMessage second = got.get(1).getRawAmqpMessage();
        equal(AmqpMessageBodyType.VALUE, second.getBody().getBodyType(), "body type");
        equal(42L, second.getBody().getValue(), "value body");
        AmqpAnnotatedMessage third = got.get(2).getRawAmqpMessage();
        equal(AmqpMessageBodyType.SEQUENCE, third.getBody().getBodyType(), "body type");
        equal(Arrays.asList(1, "two", 3.0), third.getBody().getSequence(), "sequence body");
        return "";
    }

    private String large() {
        byte[] body = new byte[200 * 1024];
        Arrays.fill(body, (byte) 7);
        sender().sendMessage(new ServiceBusMessage(BinaryData.fromBytes(body)));
        ServiceBusReceiverClient receiver = receiver();
        ServiceBusReceivedMessage message = receive(receiver, 1).get(0);
        check(Arrays.equals(body, message.getBody().toBytes()), "body");
        receiver.complete(message);
        return "";
    }

    private String tooLarge() {
        byte[] body = new byte[300 * 1024];
        ServiceBusSenderClient sender = sender();
        return expectError(ServiceBusFailureReason.MESSAGE_SIZE_EXCEEDED,
            () -> sender.sendMessage(new ServiceBusMessage(BinaryData.fromBytes(body))));
    }

    private String wrongKey() {
        String text = connectionString.replaceFirst("SharedAccessKey=[^;]*",
            "SharedAccessKey=wrong");
        ServiceBusClientBuilder retrying = new ServiceBusClientBuilder().connectionString(text);
        ServiceBusSenderClient sender = track(retrying.sender().queueName(queue).buildClient());
        return expectError(ServiceBusFailureReason.UNAUTHORIZED,
            () -> sender.sendMessage(new ServiceBusMessage("x")));
    }

    private String unknownEntity() {
        ServiceBusSenderClient sender = track(
            builder(connectionString).sender().queueName("no-such-queue").buildClient());
        return expectError(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND,
            () -> sender.sendMessage(new ServiceBusMessage("x")));
    }

    static ServiceBusClientBuilder builder(String connectionString) {
        AmqpRetryOptions retries = new AmqpRetryOptions().setMaxRetries(0)
            .setTryTimeout(Duration.ofSeconds(20));
        return new ServiceBusClientBuilder().connectionString(connectionString)
            .retryOptions(retries);
    }

    private ServiceBusClientBuilder.ServiceBusReceiverClientBuilder receiverBuilder() {
        return builder(connectionString).receiver().queueName(queue)
            .maxAutoLockRenewDuration(Duration.ZERO).disableAutoComplete();
    }

    private ServiceBusSenderClient sender() {
        return track(builder(connectionString).sender().queueName(queue).buildClient());
    }

    private ServiceBusReceiverClient receiver() {
        return track(receiverBuilder().buildClient());
    }

    private ServiceBusReceiverClient deadLetters() {
        return track(receiverBuilder().subQueue(SubQueue.DEAD_LETTER_QUEUE).buildClient());
    }

    <T extends AutoCloseable> T track(T client) {
        open.add(client);
        return client;
    }

    private void closeAll() throws Exception {
        for (AutoCloseable client : open) {
            client.close();
        }
        open.clear();
    }

    static List<ServiceBusReceivedMessage> receive(
        ServiceBusReceiverClient receiver, int count) {
        List<ServiceBusReceivedMessage> messages = new ArrayList<>();
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (messages.size() < count && System.nanoTime() < end) {
            Duration left = Duration.ofNanos(Math.max(end - System.nanoTime(), 1));
            IterableStream<ServiceBusReceivedMessage> more =
                receiver.receiveMessages(count - messages.size(), left);
            more.forEach(messages::add);
        }
        equal(count, messages.size(), "messages received");
        return messages;
    }

    static void expectSilence(ServiceBusReceiverClient receiver) {
        List<String> bodies = new ArrayList<>();
        receiver.receiveMessages(1, SILENCE).forEach(m -> bodies.add(m.getBody().toString()));
        equal(List.of(), bodies, "messages that should not be there");
    }

    static String expectError(ServiceBusFailureReason reason, Runnable action) {
        try {
            action.run();
        } catch (ServiceBusException error) {
            if (!error.getReason().equals(reason)) {
                throw error;
            }
            return error.getMessage();
        }
        throw new AssertionError("no error " + reason);
    }

    private static OffsetDateTime nowMillis() {
        return OffsetDateTime.now(ZoneOffset.UTC).truncatedTo(ChronoUnit.MILLIS);
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    static void equal(Object expected, Object found, String what) {
        check(Objects.equals(expected, found), what + ": " + found + ", not " + expected);
    }

    /** Leaves the queue empty for the next scenario, whatever this one left behind. */
    private void empty() throws Exception {
        closeAll();
        Thread.sleep(LOCK.toMillis());
        for (SubQueue part : SubQueue.values()) {
            if (part == SubQueue.TRANSFER_DEAD_LETTER_QUEUE) {
                continue;
            }
            ServiceBusReceiverClient receiver = track(receiverBuilder().subQueue(part)
                .receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient());
            while (receiver.receiveMessages(100, SILENCE).stream().count() > 0) {
                continue;
            }
        }
        closeAll();
    }

    static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ' || c > '~') {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        return out.append('"').toString();
    }

    /** Which scenarios to run: SHARE=1/3 is every third one, from the second one on. */
    private static List<String> share(List<String> names) {
        String[] parts = System.getenv().getOrDefault("SHARE", "0/1").split("/");
        List<String> found = new ArrayList<>();
        for (int at = Integer.parseInt(parts[0]); at < names.size();
            at += Integer.parseInt(parts[1])) {
            found.add(names.get(at));
        }
        return found;
    }

    public static void main(String[] args) {
        run(args, scenarios());
    }

    /** Runs scenarios, and ends the process. */
    static void run(String[] args, Map<String, Scenario> all) {
        Scenarios on = new Scenarios(args[0], args[1]);
        List<String> wanted = args.length > 2
            ? Arrays.asList(args).subList(2, args.length) : share(new ArrayList<>(all.keySet()));
        ExecutorService runner = Executors.newCachedThreadPool();
        for (String name : wanted) {
            boolean ok = true;
            String detail;
            long started = System.nanoTime();
            try {
                detail = runner.submit(() -> all.get(name).run(on)).get(150, TimeUnit.SECONDS);
                on.closeAll();
            } catch (Exception error) {
                ok = false;
                StringWriter text = new StringWriter();
                error.printStackTrace(new PrintWriter(text));
                detail = text.toString();
            }
            double seconds = (System.nanoTime() - started) / 1e9;
            System.out.printf("{\"scenario\": %s, \"ok\": %s, \"detail\": %s, \"seconds\": %.3f}%n",
                quoted(name), ok, quoted(detail), seconds);
            if (!ok) {
                try {
                    runner.submit(() -> {
                        on.empty();
                        return null;
                    }).get(150, TimeUnit.SECONDS);
                } catch (Exception error) {
                    System.err.println("could not empty " + on.queue + ": " + error);
                }
            }
        }
        System.exit(0);
    }
}
