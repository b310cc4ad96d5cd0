#!/usr/bin/env bash
set -euo pipefail

rabbitmqadmin --vhost / policies declare --name=busbridge.orders '--pattern=^orders$' '--definition={"dead-letter-exchange":"orders/$dlx","dead-letter-routing-key":"orders/$deadletterqueue","dead-letter-strategy":"at-least-once","delivery-limit":4,"max-length-bytes":1073741824,"message-ttl":3600000,"overflow":"reject-publish"}' --priority=50 --apply-to=queues
rabbitmqadmin --vhost / exchanges declare '--name=$sb/other-deaths' --type=direct --durable=true '--arguments={"busbridge-schema":1}'
rabbitmqadmin --vhost / exchanges declare '--name=orders/$dlx' --type=headers --durable=true '--arguments={"alternate-exchange":"$sb/other-deaths","busbridge-schema":1}'
rabbitmqadmin --vhost / exchanges declare --name=orders --type=fanout --durable=true '--arguments={"busbridge-schema":1}'
rabbitmqadmin --vhost / queues declare '--name=$sb/sink' --type=classic --durable=true '--arguments={"x-queue-type":"classic","x-max-length":0,"busbridge-schema":1}'
rabbitmqadmin --vhost / queues declare '--name=orders/$deadletterqueue' --type=quorum --durable=true '--arguments={"x-queue-type":"quorum","x-delivery-limit":2147483647,"busbridge-schema":1}'
rabbitmqadmin --vhost / queues declare --name=orders --type=quorum --durable=true '--arguments={"x-queue-type":"quorum","busbridge-schema":1}'
rabbitmqadmin --vhost / bindings declare '--source=$sb/other-deaths' '--destination=orders/$deadletterqueue' --destination-type=queue '--routing-key=orders/$deadletterqueue' '--arguments={}'
rabbitmqadmin --vhost / bindings declare '--source=orders/$dlx' '--destination=orders/$deadletterqueue' --destination-type=queue '--routing-key=orders/$deadletterqueue' '--arguments={"x-match":"all-with-x","x-first-death-reason":"delivery_limit"}'
rabbitmqadmin --vhost / bindings declare '--source=orders/$dlx' '--destination=orders/$deadletterqueue' --destination-type=queue '--routing-key=orders/$deadletterqueue' '--arguments={"x-match":"all-with-x","x-first-death-reason":"expired"}'
rabbitmqadmin --vhost / bindings declare '--source=orders/$dlx' '--destination=orders/$deadletterqueue' --destination-type=queue '--routing-key=orders/$deadletterqueue' '--arguments={"x-match":"all-with-x","x-first-death-reason":"rejected"}'
rabbitmqadmin --vhost / bindings declare --source=orders --destination=orders --destination-type=queue --routing-key= '--arguments={}'
