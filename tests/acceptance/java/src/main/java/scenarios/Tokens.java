package scenarios;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.credential.TokenCredential;
import com.azure.core.http.policy.PortPolicy;
import com.azure.core.util.BinaryData;
import com.azure.identity.ClientSecretCredentialBuilder;
import com.azure.identity.DefaultAzureCredentialBuilder;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Logs in with azure-identity and works with the unmodified Java client.
 *
 * <p>Arguments: HOST:PORT QUEUE [load]. Prints one JSON object a scenario, {"scenario", "ok",
 * "detail"}. As `load` it sends a message and completes it, again and again on the same two links,
 * and prints {"round"} for each or {"error"} and begins anew; ends with its input. AUTHORITY,
 * TENANT, APPLICATION and SECRET are the credential; without them it is the environment's.
 */
public final class Tokens {
    private static final Duration PATIENCE = Duration.ofMinutes(2);
    private static final long PAUSE_MS = 200;

    private final String host;
    private final int port;
    private final String queue;
    private final TokenCredential credential;
    private volatile boolean hasEnded;

    private Tokens(String place, String queue) {
        this.host = place.split(":")[0];
        this.port = Integer.parseInt(place.split(":")[1]);
        this.queue = queue;
        this.credential = logIn();
    }

    private static TokenCredential logIn() {
        if (System.getenv("AUTHORITY") == null) {
            return new DefaultAzureCredentialBuilder().build();
        }
        return new ClientSecretCredentialBuilder()
            .authorityHost(System.getenv("AUTHORITY"))
            .tenantId(System.getenv("TENANT"))
            .clientId(System.getenv("APPLICATION"))
            .clientSecret(System.getenv("SECRET"))
            .disableInstanceDiscovery()
            .build();
    }

    interface Scenario {
        void run() throws Exception;
    }

    private ServiceBusClientBuilder client() {
        return new ServiceBusClientBuilder()
            .fullyQualifiedNamespace(host)
            .customEndpointAddress("https://" + host + ":" + port)
            .retryOptions(new AmqpRetryOptions().setMaxRetries(0).setTryTimeout(PATIENCE))
            .credential(credential);
    }

    private void messages() {
        try (ServiceBusSenderClient sender = client().sender().queueName(queue).buildClient();
            ServiceBusReceiverClient receiver =
                client().receiver().queueName(queue).disableAutoComplete().buildClient()) {
            sender.sendMessage(new ServiceBusMessage("hello"));
            ServiceBusReceivedMessage message = one(receiver);
            receiver.renewMessageLock(message);
            receiver.complete(message);
        }
    }

    private void sessions() {
        String place = queue + "-sessions";
        try (ServiceBusSenderClient sender = client().sender().queueName(place).buildClient();
            ServiceBusSessionReceiverClient accepting =
                client().sessionReceiver().queueName(place).disableAutoComplete().buildClient()) {
            sender.sendMessage(new ServiceBusMessage("hello").setSessionId("one"));
            try (ServiceBusReceiverClient receiver = accepting.acceptSession("one")) {
                ServiceBusReceivedMessage message = one(receiver);
                receiver.setSessionState(BinaryData.fromString("seen").toBytes());
                receiver.complete(message);
            }
        }
    }

    private static ServiceBusReceivedMessage one(ServiceBusReceiverClient receiver) {
        return receiver.receiveMessages(1, PATIENCE).stream().findFirst().orElseThrow();
    }

    private void administration() {
        ServiceBusAdministrationClient admin = new ServiceBusAdministrationClientBuilder()
            .credential(host, credential)
            .addPolicy(new PortPolicy(port, true))
            .buildClient();
        String name = queue + "-made";
        var made = admin.createQueue(name, new CreateQueueOptions().setForwardTo(queue));
        admin.updateQueue(made.setMaxDeliveryCount(3));
        if (admin.listQueues().stream().noneMatch(each -> each.getName().equals(name))) {
            throw new AssertionError(name + " is not listed");
        }
        admin.deleteQueue(name);
    }

    private void load() throws InterruptedException {
        Thread reading = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (IOException ignored) { }
            hasEnded = true;
        });
        reading.setDaemon(true);
        reading.start();
        for (int count = 0; !hasEnded; ) {
            try (ServiceBusSenderClient sender = client().sender().queueName(queue).buildClient();
                ServiceBusReceiverClient receiver =
                    client().receiver().queueName(queue).disableAutoComplete().buildClient()) {
                while (!hasEnded) {
                    sender.sendMessage(new ServiceBusMessage(String.valueOf(count)));
                    receiver.complete(one(receiver));
                    say("\"round\": " + count++);
                    Thread.sleep(PAUSE_MS);
                }
            } catch (RuntimeException error) {
                say("\"error\": " + Scenarios.quoted(error.getClass().getSimpleName() + ": " + error.getMessage()));
                Thread.sleep(1000);
            }
        }
    }

    private static void say(String fields) {
        System.out.println("{" + fields + "}");
        System.out.flush();
    }

    public static void main(String[] arguments) throws Exception {
        Tokens tokens = new Tokens(arguments[0], arguments[1]);
        if (arguments.length > 2) {
            tokens.load();
            System.exit(0);
        }
        Map<String, Scenario> all = new LinkedHashMap<>();
        all.put("messages", tokens::messages);
        all.put("sessions", tokens::sessions);
        all.put("administration", tokens::administration);
        all.forEach((name, scenario) -> {
            String detail = "";
            try {
                scenario.run();
            } catch (Throwable error) {
                StringWriter trace = new StringWriter();
                error.printStackTrace(new PrintWriter(trace));
                detail = trace.toString();
            }
            say("\"scenario\": \"" + name + "\", \"ok\": " + detail.isEmpty()
                + ", \"detail\": " + Scenarios.quoted(detail));
        });
        System.exit(0);
    }
}
