package scenarios;

import com.azure.core.exception.HttpResponseException;
import com.azure.core.http.policy.FixedDelay;
import com.azure.core.http.policy.PortPolicy;
import com.azure.core.http.policy.RetryPolicy;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.CreateTopicOptions;
import com.azure.messaging.servicebus.administration.models.EntityStatus;
import com.azure.messaging.servicebus.administration.models.QueueProperties;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.SubscriptionProperties;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.stream.Collectors;

/**
 * Runs named scenarios of the unmodified administration client of Java and prints one JSON object a
 * scenario: {"scenario", "ok", "detail"}.
 *
 * <p>Arguments: CONNECTION_STRING PREFIX. What is made has a name that begins with the prefix. The
 * client takes no port from a connection string: a policy sets the one of its Endpoint.
 */
public final class Administration {
    private final ServiceBusAdministrationClient admin;
    private final String prefix;

    private Administration(String connectionString, String prefix) {
        this.prefix = prefix;
        this.admin = new ServiceBusAdministrationClientBuilder()
            .connectionString(connectionString)
            .addPolicy(new PortPolicy(portOf(connectionString), true))
            .retryPolicy(new RetryPolicy(new FixedDelay(0, Duration.ofMillis(1))))
            .buildClient();
    }

    private static int portOf(String connectionString) {
        return Integer.parseInt(connectionString.replaceAll(".*Endpoint=sb://[^:;]*:(\\d+).*", "$1"));
    }

    private void queue() {
        String name = prefix + "-queue";
        CreateQueueOptions given = new CreateQueueOptions()
            .setLockDuration(Duration.ofSeconds(13))
            .setMaxDeliveryCount(14)
            .setDefaultMessageTimeToLive(Duration.ofDays(2).plusMillis(5))
            .setAutoDeleteOnIdle(Duration.ofMinutes(7))
            .setSessionRequired(true)
            .setUserMetadata("<who & why>");
        for (QueueProperties found : List.of(admin.createQueue(name, given), admin.getQueue(name))) {
            equal(name, found.getName());
            equal(given.getLockDuration(), found.getLockDuration());
            equal(14, found.getMaxDeliveryCount());
            equal(given.getDefaultMessageTimeToLive(), found.getDefaultMessageTimeToLive());
            equal(given.getAutoDeleteOnIdle(), found.getAutoDeleteOnIdle());
            equal(true, found.isSessionRequired());
            equal("<who & why>", found.getUserMetadata());
        }
        QueueProperties changed = admin.getQueue(name).setMaxDeliveryCount(3);
        equal(3, admin.updateQueue(changed.setStatus(EntityStatus.SEND_DISABLED)).getMaxDeliveryCount());
        equal(EntityStatus.SEND_DISABLED, admin.getQueue(name).getStatus());
        equal(0L, admin.getQueueRuntimeProperties(name).getTotalMessageCount());
        admin.deleteQueue(name);
        equal(false, admin.getQueueExists(name));
    }

    private void errors() {
        String name = prefix + "-errors";
        admin.createQueue(name);
        expectStatus(409, () -> admin.createQueue(name));
        expectStatus(404, () -> admin.deleteQueue(name + "-none"));
        expectStatus(404, () -> admin.getSubscription(name, "none"));
        CreateQueueOptions bad = new CreateQueueOptions().setLockDuration(Duration.ofMinutes(6));
        expectStatus(400, () -> admin.createQueue(name + "-bad", bad));
    }

    private void topic() {
        String name = prefix + "-topic";
        CreateTopicOptions given = new CreateTopicOptions().setUserMetadata("kept");
        equal("kept", admin.createTopic(name, given).getUserMetadata());
        CreateSubscriptionOptions options = new CreateSubscriptionOptions().setMaxDeliveryCount(14);
        SubscriptionProperties made = admin.createSubscription(name, "Sub", options);
        equal(14, made.getMaxDeliveryCount());
        equal(3, admin.updateSubscription(made.setMaxDeliveryCount(3)).getMaxDeliveryCount());
        equal(1, admin.getTopicRuntimeProperties(name).getSubscriptionCount());
        equal(0L, admin.getSubscriptionRuntimeProperties(name, "Sub").getTotalMessageCount());
        equal(true, admin.getSubscriptionExists(name, "Sub"));
        admin.deleteSubscription(name, "Sub");
        equal(false, admin.getSubscriptionExists(name, "Sub"));
        admin.deleteTopic(name);
        equal(false, admin.getTopicExists(name));
    }

    private void rules() {
        String topic = prefix + "-rules";
        admin.createTopic(topic);
        SqlRuleFilter first = new SqlRuleFilter("a = 1");
        admin.createSubscription(topic, "sub", "first", new CreateSubscriptionOptions(),
            new CreateRuleOptions(first));
        CorrelationRuleFilter correlation = new CorrelationRuleFilter().setCorrelationId("c");
        correlation.getProperties().put("text", "a<b");
        admin.createRule(topic, "correlation", "sub", new CreateRuleOptions(correlation));
        RuleProperties read = admin.getRule(topic, "sub", "correlation");
        equal("c", ((CorrelationRuleFilter) read.getFilter()).getCorrelationId());
        equal("a<b", ((CorrelationRuleFilter) read.getFilter()).getProperties().get("text"));
        RuleProperties changed = admin.getRule(topic, "sub", "first")
            .setAction(new SqlRuleAction("SET b = 2"));
        admin.updateRule(topic, "sub", changed);
        SqlRuleAction action = (SqlRuleAction) admin.getRule(topic, "sub", "first").getAction();
        equal("SET b = 2", action.getSqlExpression());
        equal(List.of("correlation", "first"), admin.listRules(topic, "sub").stream()
            .map(RuleProperties::getName).collect(Collectors.toList()));
        admin.deleteRule(topic, "sub", "correlation");
        equal(1L, admin.listRules(topic, "sub").stream().count());
    }

    private void lists() {
        for (int number = 0; number < 3; number++) {
            admin.createQueue(prefix + "-lists-" + number);
        }
        equal(3L, admin.listQueues().stream()
            .filter(queue -> queue.getName().startsWith(prefix + "-lists-")).count());
    }

    private void namespace() {
        equal("sbemulatorns", admin.getNamespaceProperties().getName());
    }

    private static void expectStatus(int status, Runnable action) {
        try {
            action.run();
        } catch (HttpResponseException error) {
            equal(status, error.getResponse().getStatusCode());
            return;
        }
        throw new AssertionError("no error " + status);
    }

    private static void equal(Object expected, Object found) {
        if (!Objects.equals(expected, found)) {
            throw new AssertionError(found + ", not " + expected);
        }
    }

    public static void main(String[] args) {
        Administration on = new Administration(args[0], args[1]);
        Map<String, Runnable> all = new LinkedHashMap<>();
        all.put("queue", on::queue);
        all.put("errors", on::errors);
        all.put("topic", on::topic);
        all.put("rules", on::rules);
        all.put("lists", on::lists);
        all.put("namespace", on::namespace);
        all.forEach((name, scenario) -> {
            String detail = "";
            try {
                scenario.run();
            } catch (Exception | AssertionError error) {
                StringWriter text = new StringWriter();
                error.printStackTrace(new PrintWriter(text));
                detail = text.toString();
            }
            System.out.printf("{\"scenario\": %s, \"ok\": %s, \"detail\": %s}%n",
                Scenarios.quoted(name), detail.isEmpty(), Scenarios.quoted(detail));
        });
        System.exit(0);
    }
}
