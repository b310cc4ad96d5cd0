#!/usr/bin/env bash
set -euo pipefail

rabbitmqctl add_vhost shop || true
rabbitmqctl --vhost shop set_policy busbridge.events/subscriptions/audit '^events/subscriptions/audit$' '{"dead-letter-exchange":"events/subscriptions/audit/$dlx","dead-letter-routing-key":"events/subscriptions/audit/$deadletterqueue","dead-letter-strategy":"at-least-once","delivery-limit":9,"expires":600000,"max-length-bytes":1073741824,"overflow":"reject-publish"}' --priority 50 --apply-to queues
rabbitmqctl --vhost shop set_policy busbridge.orders '^orders$' '{"dead-letter-exchange":"orders/$dlx","dead-letter-routing-key":"orders/$deadletterqueue","dead-letter-strategy":"at-least-once","delivery-limit":9,"max-length-bytes":1073741824,"message-ttl":3600000,"overflow":"reject-publish"}' --priority 50 --apply-to queues
rabbitmqctl --vhost shop set_policy busbridge.orders.eu '^orders\.eu$' '{"dead-letter-exchange":"orders.eu/$dlx","dead-letter-routing-key":"orders.eu/$deadletterqueue","dead-letter-strategy":"at-least-once","delivery-limit":9,"max-length-bytes":1073741824,"overflow":"reject-publish"}' --priority 50 --apply-to queues
rabbitmqctl --vhost shop set_operator_policy busbridge.ceiling '^(?:\$amq\.)?[^$]+$' '{"message-ttl":1209600000}' --priority 50 --apply-to queues
definitions=$(mktemp)
trap 'rm -f "$definitions"' EXIT
cat >"$definitions" <<'DEFINITIONS'
{
 "queues": [
  {
   "name": "$sb/sink",
   "vhost": "shop",
   "durable": true,
   "auto_delete": false,
   "arguments": {
    "x-queue-type": "classic",
    "x-max-length": 0,
    "busbridge-schema": 1
   }
  },
  {
   "name": "orders/$deadletterqueue",
   "vhost": "shop",
   "durable": true,
   "auto_delete": false,
   "arguments": {
    "x-queue-type": "quorum",
    "x-delivery-limit": 2147483647,
    "busbridge-schema": 1
   }
  },
  {
   "name": "orders",
   "vhost": "shop",
   "durable": true,
   "auto_delete": false,
   "arguments": {
    "x-queue-type": "quorum",
    "busbridge-schema": 1
   }
  },
  {
   "name": "orders.eu",
   "vhost": "shop",
   "durable": true,
   "auto_delete": false,
   "arguments": {
    "x-queue-type": "quorum",
    "busbridge-schema": 1
   }
  },
  {
   "name": "events/subscriptions/audit/$deadletterqueue",
   "vhost": "shop",
   "durable": true,
   "auto_delete": false,
   "arguments": {
    "x-queue-type": "quorum",
    "x-delivery-limit": 2147483647,
    "busbridge-schema": 1
   }
  },
  {
   "name": "events/subscriptions/audit",
   "vhost": "shop",
   "durable": true,
   "auto_delete": false,
   "arguments": {
    "x-queue-type": "quorum",
    "busbridge-schema": 1
   }
  }
 ],
 "exchanges": [
  {
   "name": "$sb/other-deaths",
   "vhost": "shop",
   "type": "direct",
   "durable": true,
   "auto_delete": false,
   "internal": false,
   "arguments": {
    "busbridge-schema": 1
   }
  },
  {
   "name": "orders/$dlx",
   "vhost": "shop",
   "type": "headers",
   "durable": true,
   "auto_delete": false,
   "internal": false,
   "arguments": {
    "alternate-exchange": "$sb/other-deaths",
    "busbridge-schema": 1
   }
  },
  {
   "name": "orders",
   "vhost": "shop",
   "type": "fanout",
   "durable": true,
   "auto_delete": false,
   "internal": false,
   "arguments": {
    "busbridge-schema": 1
   }
  },
  {
   "name": "orders.eu/$dlx",
   "vhost": "shop",
   "type": "headers",
   "durable": true,
   "auto_delete": false,
   "internal": false,
   "arguments": {
    "alternate-exchange": "$sb/other-deaths",
    "busbridge-schema": 1
   }
  },
  {
   "name": "orders.eu",
   "vhost": "shop",
   "type": "fanout",
   "durable": true,
   "auto_delete": false,
   "internal": false,
   "arguments": {
    "busbridge-schema": 1
   }
  },
  {
   "name": "events",
   "vhost": "shop",
   "type": "headers",
   "durable": true,
   "auto_delete": false,
   "internal": false,
   "arguments": {
    "busbridge-schema": 1
   }
  },
  {
   "name": "events/subscriptions/audit/$dlx",
   "vhost": "shop",
   "type": "headers",
   "durable": true,
   "auto_delete": false,
   "internal": false,
   "arguments": {
    "alternate-exchange": "$sb/other-deaths",
    "busbridge-schema": 1
   }
  }
 ],
 "bindings": [
  {
   "source": "$sb/other-deaths",
   "vhost": "shop",
   "destination": "orders/$deadletterqueue",
   "destination_type": "queue",
   "routing_key": "orders/$deadletterqueue",
   "arguments": {}
  },
  {
   "source": "orders/$dlx",
   "vhost": "shop",
   "destination": "orders/$deadletterqueue",
   "destination_type": "queue",
   "routing_key": "orders/$deadletterqueue",
   "arguments": {
    "x-match": "all-with-x",
    "x-first-death-reason": "delivery_limit"
   }
  },
  {
   "source": "orders/$dlx",
   "vhost": "shop",
   "destination": "$sb/sink",
   "destination_type": "queue",
   "routing_key": "$sb/sink",
   "arguments": {
    "x-match": "all-with-x",
    "x-first-death-reason": "expired"
   }
  },
  {
   "source": "orders/$dlx",
   "vhost": "shop",
   "destination": "orders/$deadletterqueue",
   "destination_type": "queue",
   "routing_key": "orders/$deadletterqueue",
   "arguments": {
    "x-match": "all-with-x",
    "x-first-death-reason": "rejected"
   }
  },
  {
   "source": "orders",
   "vhost": "shop",
   "destination": "orders",
   "destination_type": "queue",
   "routing_key": "",
   "arguments": {}
  },
  {
   "source": "$sb/other-deaths",
   "vhost": "shop",
   "destination": "orders",
   "destination_type": "exchange",
   "routing_key": "orders.eu/$deadletterqueue",
   "arguments": {}
  },
  {
   "source": "orders.eu/$dlx",
   "vhost": "shop",
   "destination": "orders",
   "destination_type": "exchange",
   "routing_key": "orders.eu/$deadletterqueue",
   "arguments": {
    "x-match": "all-with-x",
    "x-first-death-reason": "delivery_limit"
   }
  },
  {
   "source": "orders.eu/$dlx",
   "vhost": "shop",
   "destination": "$sb/sink",
   "destination_type": "queue",
   "routing_key": "$sb/sink",
   "arguments": {
    "x-match": "all-with-x",
    "x-first-death-reason": "expired"
   }
  },
  {
   "source": "orders.eu/$dlx",
   "vhost": "shop",
   "destination": "orders",
   "destination_type": "exchange",
   "routing_key": "orders.eu/$deadletterqueue",
   "arguments": {
    "x-match": "all-with-x",
    "x-first-death-reason": "rejected"
   }
  },
  {
   "source": "orders.eu",
   "vhost": "shop",
   "destination": "orders.eu",
   "destination_type": "queue",
   "routing_key": "",
   "arguments": {}
  },
  {
   "source": "$sb/other-deaths",
   "vhost": "shop",
   "destination": "events/subscriptions/audit/$deadletterqueue",
   "destination_type": "queue",
   "routing_key": "events/subscriptions/audit/$deadletterqueue",
   "arguments": {}
  },
  {
   "source": "events/subscriptions/audit/$dlx",
   "vhost": "shop",
   "destination": "events/subscriptions/audit/$deadletterqueue",
   "destination_type": "queue",
   "routing_key": "events/subscriptions/audit/$deadletterqueue",
   "arguments": {
    "x-match": "all-with-x",
    "x-first-death-reason": "delivery_limit"
   }
  },
  {
   "source": "events/subscriptions/audit/$dlx",
   "vhost": "shop",
   "destination": "$sb/sink",
   "destination_type": "queue",
   "routing_key": "$sb/sink",
   "arguments": {
    "x-match": "all-with-x",
    "x-first-death-reason": "expired"
   }
  },
  {
   "source": "events/subscriptions/audit/$dlx",
   "vhost": "shop",
   "destination": "events/subscriptions/audit/$deadletterqueue",
   "destination_type": "queue",
   "routing_key": "events/subscriptions/audit/$deadletterqueue",
   "arguments": {
    "x-match": "all-with-x",
    "x-first-death-reason": "rejected"
   }
  },
  {
   "source": "events",
   "vhost": "shop",
   "destination": "events/subscriptions/audit",
   "destination_type": "queue",
   "routing_key": "",
   "arguments": {
    "x-match": "all-with-x",
    "color": "red"
   }
  }
 ]
}
DEFINITIONS
# Called by root, the rabbitmqctl of Linux packages runs as the user rabbitmq.
if [ "$(id -u)" = 0 ]; then chown rabbitmq "$definitions" 2>/dev/null || true; fi
rabbitmqctl import_definitions "$definitions"
