#!/usr/bin/env bash
set -euo pipefail

rabbitmqctl add_vhost shop || true
rabbitmqctl eval 'lists:foreach(fun({Name,Type})->case rabbit_amqqueue:lookup(rabbit_misc:r(<<"shop">>,queue,Name)) of {ok,Queue}->case {amqqueue:get_type(Queue),rabbit_misc:table_lookup(amqqueue:get_arguments(Queue),<<"busbridge-schema">>)} of {Type,undefined}->exit({queue_without_our_arguments_is_there,Name});{Type,_}->ok;{Other,_}->exit({queue_of_another_type_is_there,Name,Other}) end;_->ok end end,[{<<"Orders">>,rabbit_quorum_queue},{<<"orders.eu">>,rabbit_quorum_queue},{<<"late">>,rabbit_quorum_queue},{<<"events/subscriptions/Audit">>,rabbit_quorum_queue}]).'
rabbitmqctl --vhost shop set_policy busbridge.limit-9.expires-600000.size-1073741824 '^events/subscriptions/Audit$' '{"delivery-limit":9,"expires":600000,"max-length-bytes":1073741824}' --priority 50 --apply-to queues
rabbitmqctl --vhost shop set_policy busbridge.limit-9.size-1073741824 '^(?:late|orders\.eu)$' '{"delivery-limit":9,"max-length-bytes":1073741824}' --priority 50 --apply-to queues
rabbitmqctl --vhost shop set_policy busbridge.limit-9.size-1073741824.ttl-3600000 '^Orders$' '{"delivery-limit":9,"max-length-bytes":1073741824,"message-ttl":3600000}' --priority 50 --apply-to queues
rabbitmqctl --vhost shop set_policy busbridge.dead-letters '^.+/\$deadletterqueue$' '{"delivery-limit":2147483647}' --priority 1000 --apply-to queues
rabbitmqctl --vhost shop set_policy busbridge.sink '^\$sb/sink$' '{"max-length":0}' --priority 1000 --apply-to queues
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
   "name": "Orders/$deadletterqueue",
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
   "name": "Orders",
   "vhost": "shop",
   "durable": true,
   "auto_delete": false,
   "arguments": {
    "x-queue-type": "quorum",
    "x-dead-letter-exchange": "Orders/$dlx",
    "x-dead-letter-routing-key": "Orders/$deadletterqueue",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
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
    "x-dead-letter-exchange": "orders.eu/$dlx",
    "x-dead-letter-routing-key": "orders.eu/$deadletterqueue",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
    "busbridge-schema": 1
   }
  },
  {
   "name": "late/$deadletterqueue",
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
   "name": "late",
   "vhost": "shop",
   "durable": true,
   "auto_delete": false,
   "arguments": {
    "x-queue-type": "quorum",
    "x-dead-letter-exchange": "late/$dlx",
    "x-dead-letter-routing-key": "late/$deadletterqueue",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
    "busbridge-schema": 1
   }
  },
  {
   "name": "events/subscriptions/Audit/$deadletterqueue",
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
   "name": "events/subscriptions/Audit",
   "vhost": "shop",
   "durable": true,
   "auto_delete": false,
   "arguments": {
    "x-queue-type": "quorum",
    "x-dead-letter-exchange": "events/subscriptions/Audit/$dlx",
    "x-dead-letter-routing-key": "events/subscriptions/Audit/$deadletterqueue",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
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
   "name": "Orders/$dlx",
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
   "name": "Orders",
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
   "name": "late/$dlx",
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
   "name": "late",
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
   "name": "events/subscriptions/Audit/$dlx",
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
   "destination": "Orders/$deadletterqueue",
   "destination_type": "queue",
   "routing_key": "Orders/$deadletterqueue",
   "arguments": {}
  },
  {
   "source": "Orders/$dlx",
   "vhost": "shop",
   "destination": "Orders/$deadletterqueue",
   "destination_type": "queue",
   "routing_key": "Orders/$deadletterqueue",
   "arguments": {
    "x-match": "all-with-x",
    "x-first-death-reason": "delivery_limit"
   }
  },
  {
   "source": "Orders/$dlx",
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
   "source": "Orders/$dlx",
   "vhost": "shop",
   "destination": "Orders/$deadletterqueue",
   "destination_type": "queue",
   "routing_key": "Orders/$deadletterqueue",
   "arguments": {
    "x-match": "all-with-x",
    "x-first-death-reason": "rejected"
   }
  },
  {
   "source": "Orders",
   "vhost": "shop",
   "destination": "Orders",
   "destination_type": "queue",
   "routing_key": "",
   "arguments": {}
  },
  {
   "source": "$sb/other-deaths",
   "vhost": "shop",
   "destination": "Orders",
   "destination_type": "exchange",
   "routing_key": "orders.eu/$deadletterqueue",
   "arguments": {}
  },
  {
   "source": "orders.eu/$dlx",
   "vhost": "shop",
   "destination": "Orders",
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
   "destination": "Orders",
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
   "destination": "late/$deadletterqueue",
   "destination_type": "queue",
   "routing_key": "late/$deadletterqueue",
   "arguments": {}
  },
  {
   "source": "late/$dlx",
   "vhost": "shop",
   "destination": "late/$deadletterqueue",
   "destination_type": "queue",
   "routing_key": "late/$deadletterqueue",
   "arguments": {
    "x-match": "all-with-x",
    "x-first-death-reason": "delivery_limit"
   }
  },
  {
   "source": "late/$dlx",
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
   "source": "late/$dlx",
   "vhost": "shop",
   "destination": "late/$deadletterqueue",
   "destination_type": "queue",
   "routing_key": "late/$deadletterqueue",
   "arguments": {
    "x-match": "all-with-x",
    "x-first-death-reason": "rejected"
   }
  },
  {
   "source": "late",
   "vhost": "shop",
   "destination": "late",
   "destination_type": "queue",
   "routing_key": "",
   "arguments": {}
  },
  {
   "source": "$sb/other-deaths",
   "vhost": "shop",
   "destination": "events/subscriptions/Audit/$deadletterqueue",
   "destination_type": "queue",
   "routing_key": "events/subscriptions/Audit/$deadletterqueue",
   "arguments": {}
  },
  {
   "source": "events/subscriptions/Audit/$dlx",
   "vhost": "shop",
   "destination": "events/subscriptions/Audit/$deadletterqueue",
   "destination_type": "queue",
   "routing_key": "events/subscriptions/Audit/$deadletterqueue",
   "arguments": {
    "x-match": "all-with-x",
    "x-first-death-reason": "delivery_limit"
   }
  },
  {
   "source": "events/subscriptions/Audit/$dlx",
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
   "source": "events/subscriptions/Audit/$dlx",
   "vhost": "shop",
   "destination": "events/subscriptions/Audit/$deadletterqueue",
   "destination_type": "queue",
   "routing_key": "events/subscriptions/Audit/$deadletterqueue",
   "arguments": {
    "x-match": "all-with-x",
    "x-first-death-reason": "rejected"
   }
  },
  {
   "source": "events",
   "vhost": "shop",
   "destination": "events/subscriptions/Audit",
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
rm -f "$definitions"
definitions=$(mktemp)
trap 'rm -f "$definitions"' EXIT
cat >"$definitions" <<'DEFINITIONS'
{
 "parameters": [
  {
   "vhost": "shop",
   "component": "shovel",
   "name": "busbridge.late",
   "value": {
    "src-protocol": "amqp091",
    "src-uri": "amqp:///shop",
    "src-queue": "late",
    "dest-protocol": "amqp091",
    "dest-uri": "amqp:///shop",
    "dest-exchange": "Orders",
    "ack-mode": "on-confirm",
    "src-predeclared": true
   }
  }
 ]
}
DEFINITIONS
# Called by root, the rabbitmqctl of Linux packages runs as the user rabbitmq.
if [ "$(id -u)" = 0 ]; then chown rabbitmq "$definitions" 2>/dev/null || true; fi
rabbitmqctl import_definitions "$definitions"
rm -f "$definitions"
