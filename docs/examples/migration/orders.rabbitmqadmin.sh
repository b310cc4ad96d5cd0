#!/usr/bin/env bash
set -euo pipefail

rabbitmqadmin --vhost / policies declare --name=busbridge.limit-4.size-1073741824.ttl-3600000 '--pattern=^orders$' '--definition={"delivery-limit":4,"max-length-bytes":1073741824,"message-ttl":3600000}' --priority=50 --apply-to=queues
rabbitmqadmin --vhost / policies declare --name=busbridge.dead-letters '--pattern=^.+/\$deadletterqueue$' '--definition={"delivery-limit":2147483647}' --priority=1000 --apply-to=queues
rabbitmqadmin --vhost / policies declare --name=busbridge.sink '--pattern=^\$sb/sink$' '--definition={"max-length":0}' --priority=1000 --apply-to=queues
rabbitmqadmin --vhost / exchanges declare '--name=$sb/other-deaths' --type=direct --durable=true '--arguments={"busbridge-schema":1}'
rabbitmqadmin --vhost / exchanges declare '--name=orders/$dlx' --type=headers --durable=true '--arguments={"alternate-exchange":"$sb/other-deaths","busbridge-schema":1}'
rabbitmqadmin --vhost / exchanges declare --name=orders --type=fanout --durable=true '--arguments={"busbridge-schema":1}'
rabbitmqadmin --vhost / queues declare '--name=$sb/sink' --type=classic --durable=true '--arguments={"x-queue-type":"classic","x-max-length":0,"busbridge-schema":1}'
rabbitmqadmin --vhost / queues declare '--name=orders/$deadletterqueue' --type=quorum --durable=true '--arguments={"x-queue-type":"quorum","x-delivery-limit":2147483647,"busbridge-schema":1}'
rabbitmqadmin --vhost / queues declare --name=orders --type=quorum --durable=true '--arguments={"x-queue-type":"quorum","x-dead-letter-exchange":"orders/$dlx","x-dead-letter-routing-key":"orders/$deadletterqueue","x-dead-letter-strategy":"at-least-once","x-overflow":"reject-publish","busbridge-schema":1}'
rabbitmqadmin --vhost / bindings declare '--source=$sb/other-deaths' '--destination=orders/$deadletterqueue' --destination-type=queue '--routing-key=orders/$deadletterqueue' '--arguments={}'
rabbitmqadmin --vhost / bindings declare '--source=orders/$dlx' '--destination=orders/$deadletterqueue' --destination-type=queue '--routing-key=orders/$deadletterqueue' '--arguments={"x-match":"all-with-x","x-first-death-reason":"delivery_limit"}'
rabbitmqadmin --vhost / bindings declare '--source=orders/$dlx' '--destination=orders/$deadletterqueue' --destination-type=queue '--routing-key=orders/$deadletterqueue' '--arguments={"x-match":"all-with-x","x-first-death-reason":"expired"}'
rabbitmqadmin --vhost / bindings declare '--source=orders/$dlx' '--destination=orders/$deadletterqueue' --destination-type=queue '--routing-key=orders/$deadletterqueue' '--arguments={"x-match":"all-with-x","x-first-death-reason":"rejected"}'
rabbitmqadmin --vhost / bindings declare --source=orders --destination=orders --destination-type=queue --routing-key= '--arguments={}'
