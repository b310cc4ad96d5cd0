package scenarios;

import jakarta.jms.BytesMessage;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import org.springframework.boot.Banner;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.jms.connection.JmsTransactionManager;
import org.springframework.jms.core.JmsTemplate;
import org.springframework.transaction.support.TransactionTemplate;

/**
 * An application with the Spring Cloud Azure JMS starter: prints one JSON object a scenario.
 *
 * <p>Arguments: CONNECTION_STRING PREFIX; the queues are PREFIX-plain and so on, empty.
 */
public final class Spring {
    private static final long PATIENCE_MS = 120_000;
    private static final long SILENCE_MS = 1_500;

    private final Listeners listeners;
    private final JmsTemplate template;
    private final ConnectionFactory factory;
    private final String prefix;

    private Spring(ConfigurableApplicationContext context, String prefix) {
        this.listeners = context.getBean(Listeners.class);
        this.template = context.getBean(JmsTemplate.class);
        this.factory = context.getBean(ConnectionFactory.class);
        this.prefix = prefix;
    }

    private interface Scenario {
        void run(Spring on) throws Exception;
    }

    private String queue(String name) {
        return prefix + "-" + name;
    }

    private static Listeners.Delivery next(BlockingQueue<Listeners.Delivery> of) throws Exception {
        return of.poll(PATIENCE_MS, TimeUnit.MILLISECONDS);
    }

    private static void nothingMore(BlockingQueue<Listeners.Delivery> of) throws Exception {
        equal(null, of.poll(SILENCE_MS, TimeUnit.MILLISECONDS));
    }

    private Message receive(String name) {
        template.setReceiveTimeout(PATIENCE_MS);
        return template.receive(queue(name));
    }

    private void expectOnly(String name, String... texts) throws JMSException {
        for (String text : texts) {
            equal(text, ((TextMessage) receive(name)).getText());
        }
        template.setReceiveTimeout(SILENCE_MS);
        equal(null, template.receive(queue(name)));
    }

    private static void equal(Object expected, Object found) {
        if (!Objects.equals(expected, found)) {
            throw new AssertionError(found + ", not " + expected);
        }
    }

    private void listener() throws Exception {
        List<String> sent = new ArrayList<>();
        List<String> received = new ArrayList<>();
        for (int number = 10; number < 30; number++) {
            sent.add("order-" + number);
            template.convertAndSend(queue("plain"), "order-" + number);
        }
        for (int number = 10; number < 30; number++) {
            Listeners.Delivery delivery = next(listeners.plain);
            equal(1, delivery.count());
            received.add(delivery.text());
        }
        Collections.sort(received);
        equal(sent, received);
        nothingMore(listeners.plain);
    }

    private void listenerThatThrows() throws Exception {
        template.convertAndSend(queue("failing"), "poison");
        for (int count = 1; count <= 3; count++) {
            equal(new Listeners.Delivery("poison", count), next(listeners.failing));
        }
        TextMessage dead = (TextMessage) receive("failing/$deadletterqueue");
        equal("poison", dead.getText());
        equal("MaxDeliveryCountExceeded", dead.getStringProperty("DeadLetterReason"));
        nothingMore(listeners.failing);
    }

    private void sendsOfAListenerThatThrows() throws Exception {
        template.convertAndSend(queue("forwarding"), "parcel");
        equal(new Listeners.Delivery("parcel", 1), next(listeners.forwarding));
        equal(new Listeners.Delivery("parcel", 2), next(listeners.forwarding));
        expectOnly("forwarded", "parcel");
        nothingMore(listeners.forwarding);
    }

    private void replyOfAListener() throws Exception {
        template.convertAndSend(queue("asked"), "question");
        expectOnly("answered", "answer to question");
    }

    /** By a temporary queue; the answer is part of the listener's transaction. */
    private void requestAndReply() throws Exception {
        template.setReceiveTimeout(PATIENCE_MS);
        for (int number = 0; number < 3; number++) {
            String question = "question " + number;
            TextMessage answer = (TextMessage) template.sendAndReceive(
                queue("asked"), session -> session.createTextMessage(question));
            equal("answer to " + question, answer == null ? null : answer.getText());
        }
    }

    private void transactionOfATemplate() throws Exception {
        TransactionTemplate transaction =
            new TransactionTemplate(new JmsTransactionManager(factory));
        transaction.executeWithoutResult(status -> {
            template.convertAndSend(queue("sent"), "never");
            template.convertAndSend(queue("sent"), "never, too");
            status.setRollbackOnly();
        });
        transaction.executeWithoutResult(status -> {
            template.convertAndSend(queue("sent"), "one");
            template.convertAndSend(queue("sent"), "two");
        });
        expectOnly("sent", "one", "two");
    }

    /** With the starter's prefetch a busy listener keeps no message from another receiver. */
    private void nothingIsPrefetched() throws Exception {
        template.convertAndSend(queue("slow"), "first");
        equal(new Listeners.Delivery("first", 1), next(listeners.slow));
        try {
            template.convertAndSend(queue("slow"), "second");
            expectOnly("slow", "second");
        } finally {
            listeners.slowMayEnd.release();
        }
        nothingMore(listeners.slow);
    }

    private void types() throws Exception {
        template.convertAndSend(queue("types"), Map.of("text", "x", "number", 7L, "yes", true));
        MapMessage map = (MapMessage) receive("types");
        equal("x", map.getString("text"));
        equal(7L, map.getObject("number"));
        equal(true, map.getObject("yes"));
        template.convertAndSend(queue("types"), new byte[] {1, 2, 3}, message -> {
            message.setIntProperty("size", 3);
            message.setJMSCorrelationID("of another");
            return message;
        });
        BytesMessage bytes = (BytesMessage) receive("types");
        equal(3L, bytes.getBodyLength());
        equal(3, bytes.getObjectProperty("size"));
        equal("of another", bytes.getJMSCorrelationID());
    }

    /** As in the standard tier: a subscription is a queue of its topic. */
    private void subscriptionAsAQueue() throws Exception {
        JmsTemplate topics = new JmsTemplate(factory);
        topics.setPubSubDomain(true);
        topics.convertAndSend(queue("news"), "headline");
        equal(new Listeners.Delivery("headline", 1), next(listeners.subscription));
        nothingMore(listeners.subscription);
    }

    private static final Map<String, String[]> SETTINGS = new LinkedHashMap<>();
    private static final Map<String, Scenario> SCENARIOS = new LinkedHashMap<>();

    static {
        SETTINGS.put("", new String[0]);
        SETTINGS.put("_cached", new String[] {"spring.jms.cache.enabled=true"});
        SETTINGS.put("_pooled", new String[] {"spring.jms.servicebus.pool.enabled=true"});
        SCENARIOS.put("listener", Spring::listener);
        SCENARIOS.put("listener_that_throws", Spring::listenerThatThrows);
        SCENARIOS.put("sends_of_a_listener_that_throws", Spring::sendsOfAListenerThatThrows);
        SCENARIOS.put("reply_of_a_listener", Spring::replyOfAListener);
        SCENARIOS.put("request_and_reply", Spring::requestAndReply);
        SCENARIOS.put("transaction_of_a_template", Spring::transactionOfATemplate);
        SCENARIOS.put("nothing_is_prefetched", Spring::nothingIsPrefetched);
        SCENARIOS.put("types", Spring::types);
        SCENARIOS.put("subscription_as_a_queue", Spring::subscriptionAsAQueue);
    }

    /** It has what is sent while its application is away, and what its listener failed on. */
    private static void durableSubscription(String connectionString, String prefix)
        throws Exception {
        String setting = "spring.jms.servicebus.topic-client-id=books";
        try (ConfigurableApplicationContext context =
            start(TopicListeners.class, connectionString, prefix, setting)) {
            BlockingQueue<Listeners.Delivery> received =
                context.getBean(TopicListeners.class).received;
            // What is sent before the subscription is made is not for it.
            while (received.isEmpty()) {
                publish(context, prefix, "begin");
                Thread.sleep(200);
            }
            publish(context, prefix, "fail once");
            Listeners.Delivery delivery = next(received);
            while (delivery.text().equals("begin")) {
                equal(1, delivery.count());
                delivery = next(received);
            }
            equal(new Listeners.Delivery("fail once", 1), delivery);
            equal(new Listeners.Delivery("fail once", 2), next(received));
            nothingMore(received);
        }
        try (ConfigurableApplicationContext context =
            start(Listeners.class, connectionString, prefix)) {
            publish(context, prefix, "while it was away");
        }
        try (ConfigurableApplicationContext context =
            start(TopicListeners.class, connectionString, prefix, setting)) {
            BlockingQueue<Listeners.Delivery> received =
                context.getBean(TopicListeners.class).received;
            equal(new Listeners.Delivery("while it was away", 1), next(received));
            nothingMore(received);
        }
    }

    private static void publish(
        ConfigurableApplicationContext context, String prefix, String text) {
        JmsTemplate topics = new JmsTemplate(context.getBean(ConnectionFactory.class));
        topics.setPubSubDomain(true);
        topics.convertAndSend(prefix + "-events", text);
    }

    private static ConfigurableApplicationContext start(
        Class<?> application, String connectionString, String prefix, String... settings) {
        System.setProperty("prefix", prefix);
        return new SpringApplicationBuilder(application)
            .bannerMode(Banner.Mode.OFF)
            .properties(
                "logging.level.root=" + System.getenv().getOrDefault("LOG", "off"),
                "spring.jms.servicebus.connection-string=" + connectionString,
                "spring.jms.servicebus.pricing-tier=premium")
            .run(java.util.Arrays.stream(settings).map(each -> "--" + each)
                .toArray(String[]::new));
    }

    private static void report(String name, Scenario scenario, Spring on) {
        String detail = "";
        try {
            scenario.run(on);
        } catch (Exception | AssertionError error) {
            detail = error + " at " + java.util.Arrays.toString(error.getStackTrace());
        }
        System.out.printf("{\"scenario\": \"%s\", \"ok\": %s, \"detail\": \"%s\"}%n",
            name, detail.isEmpty(),
            detail.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " "));
    }

    public static void main(String[] args) {
        SETTINGS.forEach((suffix, settings) -> {
            try (ConfigurableApplicationContext context =
                start(Listeners.class, args[0], args[1], settings)) {
                SCENARIOS.forEach((name, scenario) ->
                    report(name + suffix, scenario, new Spring(context, args[1])));
            }
        });
        report("durable_subscription", on -> durableSubscription(args[0], args[1]), null);
        System.exit(0);
    }
}
