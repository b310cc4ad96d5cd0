package scenarios;

import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.TextMessage;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Configuration;
import org.springframework.jms.annotation.EnableJms;
import org.springframework.jms.annotation.JmsListener;
import org.springframework.jms.core.JmsTemplate;
import org.springframework.messaging.handler.annotation.SendTo;

/** The application: its listeners, by the starter's own container factories. */
@Configuration(proxyBeanMethods = false)
@EnableAutoConfiguration
@EnableJms
public class Listeners {
    /** What a listener got: the text of a message, and which delivery of it that was. */
    record Delivery(String text, int count) {
        static Delivery of(Message message) throws JMSException {
            return new Delivery(
                ((TextMessage) message).getText(), message.getIntProperty("JMSXDeliveryCount"));
        }
    }

    final BlockingQueue<Delivery> plain = new LinkedBlockingQueue<>();
    final BlockingQueue<Delivery> failing = new LinkedBlockingQueue<>();
    final BlockingQueue<Delivery> forwarding = new LinkedBlockingQueue<>();
    final BlockingQueue<Delivery> slow = new LinkedBlockingQueue<>();
    final BlockingQueue<Delivery> subscription = new LinkedBlockingQueue<>();
    final Semaphore slowMayEnd = new Semaphore(0);

    private final JmsTemplate template;

    Listeners(JmsTemplate template) {
        this.template = template;
    }

    @JmsListener(destination = "${prefix}-plain")
    void plain(Message message) throws JMSException {
        plain.add(Delivery.of(message));
    }

    @JmsListener(destination = "${prefix}-failing")
    void failing(Message message) throws JMSException {
        failing.add(Delivery.of(message));
        throw new IllegalStateException("this listener fails");
    }

    /** Sends what it receives on, and fails the first time. */
    @JmsListener(destination = "${prefix}-forwarding")
    void forwarding(Message message) throws JMSException {
        Delivery delivery = Delivery.of(message);
        template.convertAndSend(System.getProperty("prefix") + "-forwarded", delivery.text());
        forwarding.add(delivery);
        if (delivery.count() == 1) {
            throw new IllegalStateException("this listener fails once");
        }
    }

    @JmsListener(destination = "${prefix}-asked")
    @SendTo("${prefix}-answered")
    String asked(String question) {
        return "answer to " + question;
    }

    @JmsListener(destination = "${prefix}-news/subscriptions/all")
    void subscription(Message message) throws JMSException {
        subscription.add(Delivery.of(message));
    }

    @JmsListener(destination = "${prefix}-slow")
    void slow(Message message) throws Exception {
        slow.add(Delivery.of(message));
        slowMayEnd.acquire();
    }
}
