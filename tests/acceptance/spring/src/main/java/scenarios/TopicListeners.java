package scenarios;

import jakarta.jms.JMSException;
import jakarta.jms.Message;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Configuration;
import org.springframework.jms.annotation.EnableJms;
import org.springframework.jms.annotation.JmsListener;

/** A subscriber, by the starter's container factory for topics. */
@Configuration(proxyBeanMethods = false)
@EnableAutoConfiguration
@EnableJms
public class TopicListeners {
    final BlockingQueue<Listeners.Delivery> received = new LinkedBlockingQueue<>();

    /** Fails at a message's first delivery if it says so. */
    @JmsListener(
        destination = "${prefix}-events", subscription = "ledger",
        containerFactory = "topicJmsListenerContainerFactory")
    void receive(Message message) throws JMSException {
        Listeners.Delivery delivery = Listeners.Delivery.of(message);
        received.add(delivery);
        if (delivery.text().startsWith("fail") && delivery.count() == 1) {
            throw new IllegalStateException("this listener fails once");
        }
    }
}
