package scenarios;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessageContext;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;

/**
 * A client at ordinary work: it settles in every way and prints what it does and sees, a line each.
 *
 * <p>Arguments: KIND CONNECTION_STRING PLACE; KIND is processor (with a handler that throws), batch
 * or sessions (a session processor). Ends when its input does.
 */
public final class Accounting {
    private static final int BATCH = 20;
    private static final int AT_ONCE = 20;
    private static final int SESSIONS_AT_ONCE = 4;
    private static final long LATE_MS = 500;
    private static final int[] BELOW = {68, 80, 85, 90, 95, 97, 100};
    private static final String[] FATES = {
        "complete", "abandon", "throw", "dead", "defer", "lapse", "late"
    };

    private static volatile boolean isEnding;

    private Accounting() {
    }

    private interface Call {
        void run();
    }

    private static ServiceBusClientBuilder builder(String connectionString) {
        return new ServiceBusClientBuilder().connectionString(connectionString)
            .retryOptions(new AmqpRetryOptions().setTryTimeout(Duration.ofSeconds(30)));
    }

    private static int hash(String text) {
        int value = 0x811C9DC5;
        for (byte each : text.getBytes(StandardCharsets.UTF_8)) {
            value = (value ^ (each & 0xFF)) * 16777619;
        }
        return value;
    }

    private static String fateOf(ServiceBusReceivedMessage message, boolean isInSession) {
        int value = hash(message.getMessageId() + "/" + message.getDeliveryCount());
        if (message.getMessageId().startsWith("poison")) {
            return Integer.remainderUnsigned(value, 2) == 1 ? "throw" : "abandon";
        }
        int share = Integer.remainderUnsigned(value, 100);
        int at = 0;
        while (share >= BELOW[at]) {
            at++;
        }
        return isInSession && FATES[at].equals("lapse") ? "complete" : FATES[at];
    }

    private static String quoted(String text) {
        return text == null ? "\"\"" : "\"" + text.replace("\\", "\\\\").replace("\"", "'")
            .replaceAll("\\s", " ") + "\"";
    }

    private static void say(String what, ServiceBusReceivedMessage message, String fields) {
        String line = "{\"what\":\"" + what + "\",\"id\":" + quoted(message.getMessageId())
            + ",\"number\":" + message.getSequenceNumber()
            + ",\"session\":" + quoted(message.getSessionId())
            + ",\"at\":" + System.currentTimeMillis() + "," + fields + "}";
        synchronized (System.out) {
            System.out.println(line);
            System.out.flush();
        }
    }

    private static void got(ServiceBusReceivedMessage message) {
        OffsetDateTime until = message.getSessionId() == null ? message.getLockedUntil() : null;
        say("got", message, "\"count\":" + message.getDeliveryCount() + ",\"until\":"
            + (until == null ? "null" : until.toInstant().toEpochMilli()));
    }

    private static boolean settle(ServiceBusReceivedMessage message, String how, Call call) {
        say("settling", message, "\"how\":\"" + how + "\"");
        try {
            call.run();
        } catch (RuntimeException error) {
            say("refused", message, "\"how\":\"" + how + "\",\"error\":"
                + quoted(error.toString()));
            return false;
        }
        say("settled", message, "\"how\":\"" + how + "\"");
        return true;
    }

    private static void onMessage(ServiceBusReceivedMessageContext context, boolean isInSession) {
        ServiceBusReceivedMessage message = context.getMessage();
        got(message);
        String fate = fateOf(message, isInSession);
        switch (fate) {
            case "throw" -> {
                // Without auto-complete this client settles nothing then: the lock's end counts,
                // but a session's messages go back uncounted.
                if (isInSession) {
                    settle(message, fate, context::abandon);
                    return;
                }
                say("settling", message, "\"how\":\"throw\"");
                throw new IllegalStateException("the handler has failed");
            }
            case "late" -> {
                pause(LATE_MS);
                settle(message, "complete", context::complete);
            }
            case "abandon" -> settle(message, fate, context::abandon);
            case "dead" -> settle(message, fate, context::deadLetter);
            case "defer" -> settle(message, fate, context::defer);
            // A processor renews its locks: what is left to its lock is completed here.
            default -> settle(message, "complete", context::complete);
        }
    }

    private static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private static void untilTheEnd() {
        while (!isEnding) {
            pause(100);
        }
    }

    private static void processor(String connectionString, String place) {
        ServiceBusClientBuilder.ServiceBusProcessorClientBuilder made =
            builder(connectionString).processor();
        String[] parts = place.split("/subscriptions/");
        if (parts.length > 1) {
            made.topicName(parts[0]).subscriptionName(parts[1]);
        } else {
            made.queueName(place);
        }
        ServiceBusProcessorClient client = made.maxConcurrentCalls(AT_ONCE).disableAutoComplete()
            .processMessage(context -> onMessage(context, false))
            .processError(context -> { })
            .buildProcessorClient();
        client.start();
        untilTheEnd();
        client.close();
    }

    private static void sessions(String connectionString, String place) {
        ServiceBusProcessorClient client = builder(connectionString).sessionProcessor()
            .queueName(place).maxConcurrentSessions(SESSIONS_AT_ONCE).maxConcurrentCalls(1)
            .sessionIdleTimeout(Duration.ofSeconds(1)).disableAutoComplete()
            .processMessage(context -> onMessage(context, true))
            .processError(context -> { })
            .buildProcessorClient();
        client.start();
        untilTheEnd();
        client.close();
    }

    private static void batch(String connectionString, String place) {
        ServiceBusReceiverClient receiver = builder(connectionString).receiver().queueName(place)
            .disableAutoComplete().maxAutoLockRenewDuration(Duration.ZERO).buildClient();
        while (!isEnding) {
            for (ServiceBusReceivedMessage message
                : receiver.receiveMessages(BATCH, Duration.ofMillis(500))) {
                got(message);
                handle(receiver, message, fateOf(message, false));
            }
        }
        receiver.close();
    }

    private static void handle(
        ServiceBusReceiverClient receiver, ServiceBusReceivedMessage message, String fate) {
        switch (fate) {
            case "lapse" -> say("settling", message, "\"how\":\"lapse\"");
            case "abandon", "throw" -> settle(message, fate, () -> receiver.abandon(message));
            case "dead" -> settle(message, fate, () -> receiver.deadLetter(message));
            case "defer" -> {
                boolean isDone = settle(message, fate, () -> receiver.defer(message));
                if (isDone && Integer.remainderUnsigned(hash(message.getMessageId()), 2) == 0) {
                    ServiceBusReceivedMessage again =
                        receiver.receiveDeferredMessage(message.getSequenceNumber());
                    got(again);
                    settle(again, "complete", () -> receiver.complete(again));
                }
            }
            default -> settle(message, "complete", () -> receiver.complete(message));
        }
    }

    /** Works until standard input ends. */
    public static void main(String[] arguments) {
        Thread input = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (java.io.IOException error) {
                System.err.println(error);
            }
            isEnding = true;
        });
        input.setDaemon(true);
        input.start();
        String connectionString = arguments[1];
        String place = arguments[2];
        for (String kind : List.of(arguments[0])) {
            switch (kind) {
                case "processor" -> processor(connectionString, place);
                case "sessions" -> sessions(connectionString, place);
                default -> batch(connectionString, place);
            }
        }
        System.exit(0);
    }
}
