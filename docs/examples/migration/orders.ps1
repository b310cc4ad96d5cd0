$ErrorActionPreference = 'Stop'
$PSNativeCommandUseErrorActionPreference = $false
$PSNativeCommandArgumentPassing = 'Legacy'

rabbitmqctl eval '"lists:foreach(fun({Name,Type})->case rabbit_amqqueue:lookup(rabbit_misc:r(<<""/"">>,queue,Name)) of {ok,Queue}->case {amqqueue:get_type(Queue),rabbit_misc:table_lookup(amqqueue:get_arguments(Queue),<<""busbridge-schema"">>)} of {Type,undefined}->exit({queue_without_our_arguments_is_there,Name});{Type,_}->ok;{Other,_}->exit({queue_of_another_type_is_there,Name,Other}) end;_->ok end end,[{<<""orders"">>,rabbit_quorum_queue}])."'; if ($LASTEXITCODE) { exit $LASTEXITCODE }
rabbitmqctl --vhost / set_policy busbridge.limit-4.size-1073741824.ttl-3600000 '"^orders$"' '"{""delivery-limit"":4,""max-length-bytes"":1073741824,""message-ttl"":3600000}"' --priority 50 --apply-to queues; if ($LASTEXITCODE) { exit $LASTEXITCODE }
rabbitmqctl --vhost / set_policy busbridge.dead-letters '"^.+/\$deadletterqueue$"' '"{""delivery-limit"":2147483647}"' --priority 1000 --apply-to queues; if ($LASTEXITCODE) { exit $LASTEXITCODE }
rabbitmqctl --vhost / set_policy busbridge.sink '"^\$sb/sink$"' '"{""max-length"":0}"' --priority 1000 --apply-to queues; if ($LASTEXITCODE) { exit $LASTEXITCODE }
$definitions = [System.IO.Path]::GetTempFileName()
Set-Content -LiteralPath $definitions -Encoding ascii -Value @'
{
 "queues": [
  {
   "name": "$sb/sink",
   "vhost": "/",
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
   "vhost": "/",
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
   "vhost": "/",
   "durable": true,
   "auto_delete": false,
   "arguments": {
    "x-queue-type": "quorum",
    "x-dead-letter-exchange": "orders/$dlx",
    "x-dead-letter-routing-key": "orders/$deadletterqueue",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
    "busbridge-schema": 1
   }
  }
 ],
 "exchanges": [
  {
   "name": "$sb/other-deaths",
   "vhost": "/",
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
   "vhost": "/",
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
   "vhost": "/",
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
   "vhost": "/",
   "destination": "orders/$deadletterqueue",
   "destination_type": "queue",
   "routing_key": "orders/$deadletterqueue",
   "arguments": {}
  },
  {
   "source": "orders/$dlx",
   "vhost": "/",
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
   "vhost": "/",
   "destination": "orders/$deadletterqueue",
   "destination_type": "queue",
   "routing_key": "orders/$deadletterqueue",
   "arguments": {
    "x-match": "all-with-x",
    "x-first-death-reason": "expired"
   }
  },
  {
   "source": "orders/$dlx",
   "vhost": "/",
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
   "vhost": "/",
   "destination": "orders",
   "destination_type": "queue",
   "routing_key": "",
   "arguments": {}
  }
 ]
}
'@
rabbitmqctl import_definitions $definitions; if ($LASTEXITCODE) { exit $LASTEXITCODE }
Remove-Item -LiteralPath $definitions
