#!/usr/bin/env bash
set -euo pipefail

rabbitmqctl add_vhost shop || true
rabbitmqctl eval 'lists:foreach(fun({Name,Type})->case rabbit_amqqueue:lookup(rabbit_misc:r(<<"shop">>,queue,Name)) of {ok,Queue}->case {amqqueue:get_type(Queue),rabbit_misc:table_lookup(amqqueue:get_arguments(Queue),<<"busbridge-schema">>)} of {Type,undefined}->exit({queue_without_our_arguments_is_there,Name});{Type,_}->ok;{Other,_}->exit({queue_of_another_type_is_there,Name,Other}) end;_->ok end end,[{<<"orders">>,rabbit_quorum_queue},{<<"orders.eu">>,rabbit_quorum_queue},{<<"late">>,rabbit_quorum_queue},{<<"events/subscriptions/audit">>,rabbit_quorum_queue}]).'
rabbitmqctl --vhost shop set_policy busbridge.limit-2147483647.size-1073741824 '^late$' '{"delivery-limit":2147483647,"max-length-bytes":1073741824}' --priority 50 --apply-to queues
rabbitmqctl --vhost shop set_policy busbridge.limit-9 '^events/subscriptions/audit$' '{"delivery-limit":9}' --priority 50 --apply-to queues
rabbitmqctl --vhost shop set_policy busbridge.limit-9.size-1073741824 '^orders\.eu$' '{"delivery-limit":9,"max-length-bytes":1073741824}' --priority 50 --apply-to queues
rabbitmqctl --vhost shop set_policy busbridge.limit-9.size-1073741824.ttl-3600000 '^orders$' '{"delivery-limit":9,"max-length-bytes":1073741824,"message-ttl":3600000}' --priority 50 --apply-to queues
rabbitmqctl --vhost shop set_policy busbridge.dead-letters '^.+/\$deadletterqueue$' '{"delivery-limit":2147483647}' --priority 1000 --apply-to queues
rabbitmqctl --vhost shop set_policy busbridge.bridges '^\$sb/bridge/' '{"overflow":"drop-head"}' --priority 1000 --apply-to queues
rabbitmqctl --vhost shop set_policy busbridge.inner '^(?:.+(?:/\$inbox|/\$deferred|/\$sessions|/\$transfer|/\$scheduled/.+)|\$sb/lapsed)$' '{"delivery-limit":2147483647}' --priority 1000 --apply-to queues
rabbitmqctl --vhost shop set_policy busbridge.journals '^.+(?:/\$journal|/\$moved)$' '{"max-length-bytes":1073741824}' --priority 1000 --apply-to queues
rabbitmqctl --vhost shop set_policy busbridge.settled '^.+/\$settled$' '{"max-length-bytes":67108864}' --priority 1000 --apply-to queues
rabbitmqctl --vhost shop set_policy busbridge.sink '^\$sb/sink$' '{"max-length":0}' --priority 1000 --apply-to queues
rabbitmqctl --vhost shop set_operator_policy busbridge.ceiling '^(?:\$amq\.)?[^$]+$' '{"message-ttl":1209600000}' --priority 50 --apply-to queues
definitions=$(mktemp)
trap 'rm -f "$definitions"' EXIT
cat >"$definitions" <<'DEFINITIONS'
{
 "global_parameters": [
  {
   "name": "busbridge.namespace.shop",
   "value": {
    "schema": 1,
    "kind": "namespace",
    "name": "sbemulatorns",
    "tier": "Basic",
    "authorizationRules": []
   }
  },
  {
   "name": "busbridge.entity.shop:orders",
   "value": {
    "schema": 1,
    "kind": "queue",
    "name": "Orders",
    "lockDuration": "PT1M",
    "maxSizeInMegabytes": 1024,
    "requiresDuplicateDetection": false,
    "requiresSession": false,
    "defaultMessageTimeToLive": "PT1H",
    "deadLetteringOnMessageExpiration": false,
    "duplicateDetectionHistoryTimeWindow": "PT10M",
    "maxDeliveryCount": 10,
    "enableBatchedOperations": true,
    "status": "Active",
    "forwardTo": "",
    "forwardDeadLetteredMessagesTo": "",
    "userMetadata": "",
    "autoDeleteOnIdle": "P10675199DT2H48M5.4775807S",
    "enablePartitioning": false,
    "enableExpress": false,
    "authorizationRules": []
   }
  },
  {
   "name": "busbridge.entity.shop:orders.eu",
   "value": {
    "schema": 1,
    "kind": "queue",
    "name": "orders.eu",
    "lockDuration": "PT1M",
    "maxSizeInMegabytes": 1024,
    "requiresDuplicateDetection": false,
    "requiresSession": false,
    "defaultMessageTimeToLive": "P10675199DT2H48M5.4775807S",
    "deadLetteringOnMessageExpiration": false,
    "duplicateDetectionHistoryTimeWindow": "PT10M",
    "maxDeliveryCount": 10,
    "enableBatchedOperations": true,
    "status": "Active",
    "forwardTo": "",
    "forwardDeadLetteredMessagesTo": "orders",
    "userMetadata": "",
    "autoDeleteOnIdle": "P10675199DT2H48M5.4775807S",
    "enablePartitioning": false,
    "enableExpress": false,
    "authorizationRules": []
   }
  },
  {
   "name": "busbridge.entity.shop:late",
   "value": {
    "schema": 1,
    "kind": "queue",
    "name": "late",
    "lockDuration": "PT1M",
    "maxSizeInMegabytes": 1024,
    "requiresDuplicateDetection": false,
    "requiresSession": false,
    "defaultMessageTimeToLive": "P10675199DT2H48M5.4775807S",
    "deadLetteringOnMessageExpiration": false,
    "duplicateDetectionHistoryTimeWindow": "PT10M",
    "maxDeliveryCount": 10,
    "enableBatchedOperations": true,
    "status": "Active",
    "forwardTo": "orders",
    "forwardDeadLetteredMessagesTo": "",
    "userMetadata": "",
    "autoDeleteOnIdle": "P10675199DT2H48M5.4775807S",
    "enablePartitioning": false,
    "enableExpress": false,
    "authorizationRules": []
   }
  },
  {
   "name": "busbridge.entity.shop:events",
   "value": {
    "schema": 1,
    "kind": "topic",
    "name": "events",
    "maxSizeInMegabytes": 1024,
    "requiresDuplicateDetection": false,
    "defaultMessageTimeToLive": "P10675199DT2H48M5.4775807S",
    "duplicateDetectionHistoryTimeWindow": "PT10M",
    "enableBatchedOperations": true,
    "status": "Active",
    "supportOrdering": true,
    "userMetadata": "",
    "autoDeleteOnIdle": "P10675199DT2H48M5.4775807S",
    "enablePartitioning": false,
    "enableExpress": false,
    "filteringMessagesBeforePublishing": false,
    "authorizationRules": []
   }
  },
  {
   "name": "busbridge.entity.shop:events/subscriptions/audit",
   "value": {
    "schema": 1,
    "kind": "subscription",
    "topic": "events",
    "name": "Audit",
    "lockDuration": "PT1M",
    "requiresSession": false,
    "defaultMessageTimeToLive": "P10675199DT2H48M5.4775807S",
    "deadLetteringOnMessageExpiration": false,
    "deadLetteringOnFilterEvaluationExceptions": true,
    "maxDeliveryCount": 10,
    "enableBatchedOperations": true,
    "status": "Active",
    "forwardTo": "",
    "forwardDeadLetteredMessagesTo": "",
    "userMetadata": "",
    "autoDeleteOnIdle": "PT10M",
    "rules": [
     {
      "name": "red",
      "filter": {
       "type": "correlation",
       "properties": [
        {
         "name": "color",
         "value": "red"
        }
       ]
      },
      "action": ""
     }
    ]
   }
  }
 ],
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
   "name": "$sb/lapsed",
   "vhost": "shop",
   "durable": true,
   "auto_delete": false,
   "arguments": {
    "x-queue-type": "quorum",
    "x-delivery-limit": 2147483647,
    "x-consumer-timeout": 315360000000,
    "x-consumer-disconnected-timeout": 2000,
    "x-single-active-consumer": true,
    "busbridge-schema": 1
   }
  },
  {
   "name": "orders/$moved",
   "vhost": "shop",
   "durable": true,
   "auto_delete": false,
   "arguments": {
    "x-queue-type": "stream",
    "x-max-length-bytes": 1073741824,
    "x-stream-max-segment-size-bytes": 33554432,
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
    "x-consumer-timeout": 315360000000,
    "x-consumer-disconnected-timeout": 2000,
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
    "x-delivery-limit": 2147483647,
    "x-consumer-timeout": 315360000000,
    "x-consumer-disconnected-timeout": 2000,
    "x-dead-letter-exchange": "orders/$dlx",
    "x-dead-letter-routing-key": "orders/$deadletterqueue",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
    "busbridge-schema": 1
   }
  },
  {
   "name": "orders/$journal",
   "vhost": "shop",
   "durable": true,
   "auto_delete": false,
   "arguments": {
    "x-queue-type": "stream",
    "x-max-length-bytes": 1073741824,
    "x-stream-max-segment-size-bytes": 33554432,
    "busbridge-schema": 1
   }
  },
  {
   "name": "orders/$inbox",
   "vhost": "shop",
   "durable": true,
   "auto_delete": false,
   "arguments": {
    "x-queue-type": "quorum",
    "x-delivery-limit": 2147483647,
    "x-consumer-timeout": 315360000000,
    "x-consumer-disconnected-timeout": 2000,
    "x-single-active-consumer": true,
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": "$sb/lapsed",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
    "busbridge-schema": 1
   }
  },
  {
   "name": "orders.eu/$moved",
   "vhost": "shop",
   "durable": true,
   "auto_delete": false,
   "arguments": {
    "x-queue-type": "stream",
    "x-max-length-bytes": 1073741824,
    "x-stream-max-segment-size-bytes": 33554432,
    "busbridge-schema": 1
   }
  },
  {
   "name": "orders.eu/$deadletterqueue",
   "vhost": "shop",
   "durable": true,
   "auto_delete": false,
   "arguments": {
    "x-queue-type": "quorum",
    "x-delivery-limit": 2147483647,
    "x-consumer-timeout": 315360000000,
    "x-consumer-disconnected-timeout": 2000,
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
    "x-delivery-limit": 2147483647,
    "x-consumer-timeout": 315360000000,
    "x-consumer-disconnected-timeout": 2000,
    "x-dead-letter-exchange": "orders.eu/$dlx",
    "x-dead-letter-routing-key": "orders.eu/$deadletterqueue",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
    "busbridge-schema": 1
   }
  },
  {
   "name": "orders.eu/$journal",
   "vhost": "shop",
   "durable": true,
   "auto_delete": false,
   "arguments": {
    "x-queue-type": "stream",
    "x-max-length-bytes": 1073741824,
    "x-stream-max-segment-size-bytes": 33554432,
    "busbridge-schema": 1
   }
  },
  {
   "name": "orders.eu/$inbox",
   "vhost": "shop",
   "durable": true,
   "auto_delete": false,
   "arguments": {
    "x-queue-type": "quorum",
    "x-delivery-limit": 2147483647,
    "x-consumer-timeout": 315360000000,
    "x-consumer-disconnected-timeout": 2000,
    "x-single-active-consumer": true,
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": "$sb/lapsed",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
    "busbridge-schema": 1
   }
  },
  {
   "name": "late/$moved",
   "vhost": "shop",
   "durable": true,
   "auto_delete": false,
   "arguments": {
    "x-queue-type": "stream",
    "x-max-length-bytes": 1073741824,
    "x-stream-max-segment-size-bytes": 33554432,
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
    "x-consumer-timeout": 315360000000,
    "x-consumer-disconnected-timeout": 2000,
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
    "x-delivery-limit": 2147483647,
    "x-consumer-timeout": 315360000000,
    "x-consumer-disconnected-timeout": 2000,
    "x-dead-letter-exchange": "late/$dlx",
    "x-dead-letter-routing-key": "late/$deadletterqueue",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
    "busbridge-schema": 1
   }
  },
  {
   "name": "late/$journal",
   "vhost": "shop",
   "durable": true,
   "auto_delete": false,
   "arguments": {
    "x-queue-type": "stream",
    "x-max-length-bytes": 1073741824,
    "x-stream-max-segment-size-bytes": 33554432,
    "busbridge-schema": 1
   }
  },
  {
   "name": "late/$inbox",
   "vhost": "shop",
   "durable": true,
   "auto_delete": false,
   "arguments": {
    "x-queue-type": "quorum",
    "x-delivery-limit": 2147483647,
    "x-consumer-timeout": 315360000000,
    "x-consumer-disconnected-timeout": 2000,
    "x-single-active-consumer": true,
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": "$sb/lapsed",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
    "busbridge-schema": 1
   }
  },
  {
   "name": "events/$journal",
   "vhost": "shop",
   "durable": true,
   "auto_delete": false,
   "arguments": {
    "x-queue-type": "stream",
    "x-max-length-bytes": 1073741824,
    "x-stream-max-segment-size-bytes": 33554432,
    "busbridge-schema": 1
   }
  },
  {
   "name": "events/$moved",
   "vhost": "shop",
   "durable": true,
   "auto_delete": false,
   "arguments": {
    "x-queue-type": "stream",
    "x-max-length-bytes": 1073741824,
    "x-stream-max-segment-size-bytes": 33554432,
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
    "x-consumer-timeout": 315360000000,
    "x-consumer-disconnected-timeout": 2000,
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
    "x-delivery-limit": 2147483647,
    "x-consumer-timeout": 315360000000,
    "x-consumer-disconnected-timeout": 2000,
    "x-dead-letter-exchange": "events/subscriptions/audit/$dlx",
    "x-dead-letter-routing-key": "events/subscriptions/audit/$deadletterqueue",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
    "busbridge-schema": 1
   }
  },
  {
   "name": "events/$inbox",
   "vhost": "shop",
   "durable": true,
   "auto_delete": false,
   "arguments": {
    "x-queue-type": "quorum",
    "x-delivery-limit": 2147483647,
    "x-consumer-timeout": 315360000000,
    "x-consumer-disconnected-timeout": 2000,
    "x-single-active-consumer": true,
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": "$sb/lapsed",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
    "busbridge-schema": 1
   }
  }
 ],
 "exchanges": [
  {
   "name": "$sb/events",
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
   "name": "orders/$active",
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
   "name": "orders.eu/$active",
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
   "name": "late/$active",
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
   "name": "events/$active",
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
  },
  {
   "name": "events",
   "vhost": "shop",
   "type": "fanout",
   "durable": true,
   "auto_delete": false,
   "internal": false,
   "arguments": {
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
   "source": "orders/$dlx",
   "vhost": "shop",
   "destination": "orders/$moved",
   "destination_type": "queue",
   "routing_key": "orders/$deadletterqueue",
   "arguments": {
    "x-match": "all-with-x",
    "x-first-death-reason": "delivery_limit",
    "x-busbridge-numbered": true
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
    "x-first-death-reason": "expired",
    "x-busbridge-numbered": true
   }
  },
  {
   "source": "orders/$dlx",
   "vhost": "shop",
   "destination": "orders/$moved",
   "destination_type": "queue",
   "routing_key": "orders/$deadletterqueue",
   "arguments": {
    "x-match": "all-with-x",
    "x-first-death-reason": "rejected",
    "x-busbridge-numbered": true
   }
  },
  {
   "source": "orders/$active",
   "vhost": "shop",
   "destination": "orders",
   "destination_type": "queue",
   "routing_key": "",
   "arguments": {}
  },
  {
   "source": "orders/$active",
   "vhost": "shop",
   "destination": "orders/$journal",
   "destination_type": "queue",
   "routing_key": "",
   "arguments": {}
  },
  {
   "source": "orders",
   "vhost": "shop",
   "destination": "orders/$inbox",
   "destination_type": "queue",
   "routing_key": "",
   "arguments": {}
  },
  {
   "source": "$sb/other-deaths",
   "vhost": "shop",
   "destination": "orders.eu/$deadletterqueue",
   "destination_type": "queue",
   "routing_key": "orders.eu/$deadletterqueue",
   "arguments": {}
  },
  {
   "source": "orders.eu/$dlx",
   "vhost": "shop",
   "destination": "orders.eu/$deadletterqueue",
   "destination_type": "queue",
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
   "destination": "orders.eu/$deadletterqueue",
   "destination_type": "queue",
   "routing_key": "orders.eu/$deadletterqueue",
   "arguments": {
    "x-match": "all-with-x",
    "x-first-death-reason": "rejected"
   }
  },
  {
   "source": "orders.eu/$dlx",
   "vhost": "shop",
   "destination": "orders.eu/$moved",
   "destination_type": "queue",
   "routing_key": "orders.eu/$deadletterqueue",
   "arguments": {
    "x-match": "all-with-x",
    "x-first-death-reason": "delivery_limit",
    "x-busbridge-numbered": true
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
    "x-first-death-reason": "expired",
    "x-busbridge-numbered": true
   }
  },
  {
   "source": "orders.eu/$dlx",
   "vhost": "shop",
   "destination": "orders.eu/$moved",
   "destination_type": "queue",
   "routing_key": "orders.eu/$deadletterqueue",
   "arguments": {
    "x-match": "all-with-x",
    "x-first-death-reason": "rejected",
    "x-busbridge-numbered": true
   }
  },
  {
   "source": "orders.eu/$active",
   "vhost": "shop",
   "destination": "orders.eu",
   "destination_type": "queue",
   "routing_key": "",
   "arguments": {}
  },
  {
   "source": "orders.eu/$active",
   "vhost": "shop",
   "destination": "orders.eu/$journal",
   "destination_type": "queue",
   "routing_key": "",
   "arguments": {}
  },
  {
   "source": "orders.eu",
   "vhost": "shop",
   "destination": "orders.eu/$inbox",
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
   "source": "late/$dlx",
   "vhost": "shop",
   "destination": "late/$moved",
   "destination_type": "queue",
   "routing_key": "late/$deadletterqueue",
   "arguments": {
    "x-match": "all-with-x",
    "x-first-death-reason": "delivery_limit",
    "x-busbridge-numbered": true
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
    "x-first-death-reason": "expired",
    "x-busbridge-numbered": true
   }
  },
  {
   "source": "late/$dlx",
   "vhost": "shop",
   "destination": "late/$moved",
   "destination_type": "queue",
   "routing_key": "late/$deadletterqueue",
   "arguments": {
    "x-match": "all-with-x",
    "x-first-death-reason": "rejected",
    "x-busbridge-numbered": true
   }
  },
  {
   "source": "late/$active",
   "vhost": "shop",
   "destination": "late",
   "destination_type": "queue",
   "routing_key": "",
   "arguments": {}
  },
  {
   "source": "late/$active",
   "vhost": "shop",
   "destination": "late/$journal",
   "destination_type": "queue",
   "routing_key": "",
   "arguments": {}
  },
  {
   "source": "late",
   "vhost": "shop",
   "destination": "late/$inbox",
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
   "source": "events/subscriptions/audit/$dlx",
   "vhost": "shop",
   "destination": "events/$moved",
   "destination_type": "queue",
   "routing_key": "events/subscriptions/audit/$deadletterqueue",
   "arguments": {
    "x-match": "all-with-x",
    "x-first-death-reason": "delivery_limit",
    "x-busbridge-numbered": true
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
    "x-first-death-reason": "expired",
    "x-busbridge-numbered": true
   }
  },
  {
   "source": "events/subscriptions/audit/$dlx",
   "vhost": "shop",
   "destination": "events/$moved",
   "destination_type": "queue",
   "routing_key": "events/subscriptions/audit/$deadletterqueue",
   "arguments": {
    "x-match": "all-with-x",
    "x-first-death-reason": "rejected",
    "x-busbridge-numbered": true
   }
  },
  {
   "source": "events/$active",
   "vhost": "shop",
   "destination": "events/subscriptions/audit",
   "destination_type": "queue",
   "routing_key": "rnM4ynGy",
   "arguments": {}
  },
  {
   "source": "events/$active",
   "vhost": "shop",
   "destination": "events/$journal",
   "destination_type": "queue",
   "routing_key": "j",
   "arguments": {}
  },
  {
   "source": "events",
   "vhost": "shop",
   "destination": "events/$inbox",
   "destination_type": "queue",
   "routing_key": "",
   "arguments": {}
  }
 ]
}
DEFINITIONS
# Called by root, the rabbitmqctl of Linux packages runs as the user rabbitmq.
if [ "$(id -u)" = 0 ]; then chown rabbitmq "$definitions" 2>/dev/null || true; fi
rabbitmqctl import_definitions "$definitions"
rm -f "$definitions"
