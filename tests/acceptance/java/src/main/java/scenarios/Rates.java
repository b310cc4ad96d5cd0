package scenarios;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.models.CompleteOptions;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * How often a second the Java client receives one message and sends one, with transactions and
 * without.
 *
 * <p>Arguments: CONNECTION_STRING QUEUE TARGET; QUEUE has messages enough. Each line of the
 * standard input is a round, "transacted COUNT RECEIVERS" or "plain COUNT RECEIVERS"; it is
 * answered with {"rate"}. Without a transaction the message is completed behind the send.
 */
public final class Rates {
    private static final Duration PATIENCE = Duration.ofMinutes(2);
    private static final byte[] BODY = new byte[1024];

    private final ServiceBusClientBuilder builder;
    private final ServiceBusSenderClient sender;
    private final String queue;

    private Rates(String connectionString, String queue, String target) {
        ServiceBusClientBuilder plain = Scenarios.builder(connectionString);
        this.queue = queue;
        builder = queue.equals(target) ? plain : plain.enableCrossEntityTransactions();
        ServiceBusReceiverClient first = receiver(); // whose entity comes first is the one entity
        receive(first, ServiceBusReceiverClient::abandon);
        sender = builder.sender().queueName(target).buildClient();
        first.close();
    }

    private interface Use {
        void of(ServiceBusReceiverClient receiver, ServiceBusReceivedMessage message);
    }

    private ServiceBusReceiverClient receiver() {
        return builder.receiver().queueName(queue).maxAutoLockRenewDuration(Duration.ZERO)
            .disableAutoComplete().buildClient();
    }

    private static void receive(ServiceBusReceiverClient receiver, Use use) {
        for (ServiceBusReceivedMessage each : receiver.receiveMessages(1, PATIENCE)) {
            use.of(receiver, each);
            return;
        }
        throw new IllegalStateException("no message came");
    }

    private void answer(ServiceBusReceiverClient receiver, ServiceBusReceivedMessage order) {
        sender.sendMessage(new ServiceBusMessage(BODY));
        receiver.complete(order);
    }

    private void answerAtOnce(ServiceBusReceiverClient receiver, ServiceBusReceivedMessage order) {
        ServiceBusTransactionContext transaction = receiver.createTransaction();
        sender.sendMessage(new ServiceBusMessage(BODY), transaction);
        receiver.complete(order, new CompleteOptions().setTransactionContext(transaction));
        receiver.commitTransaction(transaction);
    }

    private double rate(boolean isTransacted, int count, int receivers) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(receivers);
        AtomicInteger left = new AtomicInteger(2 * receivers);
        List<ServiceBusReceiverClient> open = new ArrayList<>();
        List<Callable<Void>> workers = new ArrayList<>();
        try {
            for (int number = 0; number < receivers; number++) {
                ServiceBusReceiverClient receiver = receiver();
                open.add(receiver);
                workers.add(() -> {
                    while (left.decrementAndGet() >= 0) {
                        receive(receiver, isTransacted ? this::answerAtOnce : this::answer);
                    }
                    return null;
                });
            }
            work(threads, workers);
            left.set(count);
            long begun = System.nanoTime();
            work(threads, workers);
            return count * 1e9 / (System.nanoTime() - begun);
        } finally {
            open.forEach(ServiceBusReceiverClient::close);
            threads.shutdown();
        }
    }

    private static void work(ExecutorService threads, List<Callable<Void>> workers)
        throws Exception {
        for (Future<Void> each : threads.invokeAll(workers)) {
            each.get();
        }
    }

    public static void main(String[] args) throws Exception {
        Rates rates = new Rates(args[0], args[1], args[2]);
        BufferedReader rounds = new BufferedReader(new InputStreamReader(System.in));
        for (String line = rounds.readLine(); line != null; line = rounds.readLine()) {
            String[] words = line.split(" ");
            double rate = rates.rate(words[0].equals("transacted"),
                Integer.parseInt(words[1]), Integer.parseInt(words[2]));
            System.out.printf(Locale.ROOT, "{\"rate\": %.3f}%n", rate);
        }
        System.exit(0);
    }
}
