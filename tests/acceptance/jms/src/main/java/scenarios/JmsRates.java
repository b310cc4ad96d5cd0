package scenarios;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * How often a second qpid-jms receives one message and sends one, with transactions and without.
 *
 * <p>Arguments: CONNECTION_STRING QUEUE TARGET; QUEUE has messages enough. Each line of the
 * standard input is a round, "transacted COUNT SESSIONS" or "plain COUNT SESSIONS"; it is answered
 * with {"rate"}. Without a transaction the message is acknowledged behind the send.
 */
public final class JmsRates {
    private static final long PATIENCE_MS = 120_000;
    private static final byte[] BODY = new byte[1024];

    private final Connection connection;
    private final String queue;
    private final String target;

    private JmsRates(Connection connection, String queue, String target) {
        this.connection = connection;
        this.queue = queue;
        this.target = target;
    }

    /** One session with its links. */
    private final class Worker implements Callable<Void>, AutoCloseable {
        private final boolean isTransacted;
        private final AtomicInteger left;
        private final Session session;
        private final MessageConsumer consumer;
        private final MessageProducer producer;

        Worker(boolean isTransacted, AtomicInteger left) throws JMSException {
            this.isTransacted = isTransacted;
            this.left = left;
            session = connection.createSession(
                isTransacted ? Session.SESSION_TRANSACTED : Session.CLIENT_ACKNOWLEDGE);
            consumer = session.createConsumer(session.createQueue(queue));
            producer = session.createProducer(session.createQueue(target));
        }

        @Override
        public Void call() throws JMSException {
            while (left.decrementAndGet() >= 0) {
                Message order = consumer.receive(PATIENCE_MS);
                if (order == null) {
                    throw new IllegalStateException("no message came");
                }
                BytesMessage answer = session.createBytesMessage();
                answer.writeBytes(BODY);
                producer.send(answer);
                if (isTransacted) {
                    session.commit();
                } else {
                    order.acknowledge();
                }
            }
            return null;
        }

        @Override
        public void close() throws JMSException {
            session.close();
        }
    }

    private double rate(boolean isTransacted, int count, int sessions) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(sessions);
        AtomicInteger left = new AtomicInteger(2 * sessions);
        List<Worker> workers = new ArrayList<>();
        try {
            for (int number = 0; number < sessions; number++) {
                workers.add(new Worker(isTransacted, left));
            }
            work(threads, workers);
            left.set(count);
            long begun = System.nanoTime();
            work(threads, workers);
            return count * 1e9 / (System.nanoTime() - begun);
        } finally {
            for (Worker each : workers) {
                each.close();
            }
            threads.shutdown();
        }
    }

    private static void work(ExecutorService threads, List<Worker> workers) throws Exception {
        for (Future<Void> each : threads.invokeAll(workers)) {
            each.get();
        }
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
        JmsConnectionFactory factory = new JmsConnectionFactory(
            part(args[0], "SharedAccessKeyName"), part(args[0], "SharedAccessKey"),
            part(args[0], "Endpoint").replace("sb://", "amqp://").replaceAll("/$", "")
                + "?jms.prefetchPolicy.all=0");
        BufferedReader rounds = new BufferedReader(new InputStreamReader(System.in));
        try (Connection connection = factory.createConnection()) {
            connection.start();
            JmsRates rates = new JmsRates(connection, args[1], args[2]);
            for (String line = rounds.readLine(); line != null; line = rounds.readLine()) {
                String[] words = line.split(" ");
                double rate = rates.rate(words[0].equals("transacted"),
                    Integer.parseInt(words[1]), Integer.parseInt(words[2]));
                System.out.printf(Locale.ROOT, "{\"rate\": %.3f}%n", rate);
            }
        }
        System.exit(0);
    }
}
