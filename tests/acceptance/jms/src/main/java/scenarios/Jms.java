package scenarios;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * Transacted sessions of qpid-jms: prints one JSON object a scenario.
 *
 * <p>Arguments: CONNECTION_STRING QUEUE; the scenarios' queues are QUEUE-commit and so on, empty.
 */
public final class Jms {
    private static final long PATIENCE_MS = 120_000;
    private static final long SILENCE_MS = 1_000;

    private final Connection connection;
    private final String queue;

    private Jms(Connection connection, String queue) {
        this.connection = connection;
        this.queue = queue;
    }

    private interface Scenario {
        void run(Jms on) throws Exception;
    }

    private void send(String body) throws JMSException {
        try (Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE)) {
            session.createProducer(session.createQueue(queue))
                .send(session.createTextMessage(body));
        }
    }

    private void expectOnly(String name, String... bodies) throws JMSException {
        try (Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE);
            MessageConsumer consumer = session.createConsumer(session.createQueue(name))) {
            for (String body : bodies) {
                equal(body, text(consumer.receive(PATIENCE_MS)));
            }
            equal(null, text(consumer.receive(SILENCE_MS)));
        }
    }

    private static String text(jakarta.jms.Message message) throws JMSException {
        return message == null ? null : ((TextMessage) message).getText();
    }

    private static void equal(Object expected, Object found) {
        if (!java.util.Objects.equals(expected, found)) {
            throw new AssertionError(found + ", not " + expected);
        }
    }

    private void commit() throws Exception {
        send("order");
        try (Session session = connection.createSession(Session.SESSION_TRANSACTED)) {
            MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
            MessageProducer producer = session.createProducer(session.createQueue(queue));
            equal("order", text(consumer.receive(PATIENCE_MS)));
            for (int number = 0; number < 20; number++) {
                producer.send(session.createTextMessage("answer-" + number));
            }
            session.commit();
            consumer.close();
        }
        String[] answers = new String[20];
        for (int number = 0; number < 20; number++) {
            answers[number] = "answer-" + number;
        }
        expectOnly(queue, answers);
    }

    private void rollback() throws Exception {
        send("order");
        try (Session session = connection.createSession(Session.SESSION_TRANSACTED)) {
            MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
            MessageProducer producer = session.createProducer(session.createQueue(queue));
            equal("order", text(consumer.receive(PATIENCE_MS)));
            producer.send(session.createTextMessage("never"));
            session.rollback();
            long started = System.nanoTime();
            TextMessage again = (TextMessage) consumer.receive(PATIENCE_MS);
            equal("order", again.getText());
            equal(2, again.getIntProperty("JMSXDeliveryCount"));
            if (System.nanoTime() - started > 30_000_000_000L) {
                throw new AssertionError("it came when its lock of a minute had ended");
            }
            session.commit();
        }
        expectOnly(queue);
    }

    private void across() throws Exception {
        send("order");
        try (Session session = connection.createSession(Session.SESSION_TRANSACTED)) {
            MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
            MessageProducer producer =
                session.createProducer(session.createQueue(queue + "-other"));
            equal("order", text(consumer.receive(PATIENCE_MS)));
            producer.send(session.createTextMessage("answer"));
            session.commit();
        }
        expectOnly(queue + "-other", "answer");
        expectOnly(queue);
    }

    /** The client takes a commit that was rolled back for one in doubt, but for its text. */
    private void tooMany() throws Exception {
        try (Session session = connection.createSession(Session.SESSION_TRANSACTED)) {
            MessageProducer producer = session.createProducer(session.createQueue(queue));
            for (int number = 0; number < 101; number++) {
                producer.send(session.createTextMessage("never"));
            }
            session.commit();
            throw new AssertionError("it was committed");
        } catch (JMSException error) {
            if (!error.getMessage().contains("100 messages")) {
                throw error;
            }
        }
        expectOnly(queue);
    }

    private static String part(String connectionString, String name) {
        for (String each : connectionString.split(";")) {
            if (each.startsWith(name + "=")) {
                return each.substring(name.length() + 1);
            }
        }
        throw new IllegalArgumentException("the connection string has no " + name);
    }

    public static void main(String[] args) throws Exception {
        Map<String, Scenario> all = new LinkedHashMap<>();
        all.put("commit", Jms::commit);
        all.put("rollback", Jms::rollback);
        all.put("too_many", Jms::tooMany);
        all.put("across", Jms::across);
        for (Map.Entry<String, Scenario> each : all.entrySet()) {
            String detail = "";
            JmsConnectionFactory factory = new JmsConnectionFactory(
                part(args[0], "SharedAccessKeyName"), part(args[0], "SharedAccessKey"),
                part(args[0], "Endpoint").replace("sb://", "amqp://").replaceAll("/$", "")
                    + "?jms.prefetchPolicy.all=0");
            try (Connection connection = factory.createConnection()) {
                connection.start();
                each.getValue().run(new Jms(connection, args[1] + "-" + each.getKey()));
            } catch (Exception | AssertionError error) {
                detail = error + " at " + java.util.Arrays.toString(error.getStackTrace());
            }
            System.out.printf("{\"scenario\": \"%s\", \"ok\": %s, \"detail\": \"%s\"}%n",
                each.getKey(), detail.isEmpty(),
                detail.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " "));
        }
        System.exit(0);
    }
}
