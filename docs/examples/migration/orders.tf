terraform {
  required_version = ">= 1.4"
  required_providers {
    rabbitmq = {
      source  = "cyrilgdn/rabbitmq"
      version = "~> 1.8"
    }
  }
}

variable "rabbitmq_endpoint" {
  default = "http://localhost:15672"
}

variable "rabbitmq_username" {
}

variable "rabbitmq_password" {
  sensitive = true
}

provider "rabbitmq" {
  endpoint = var.rabbitmq_endpoint
  username = var.rabbitmq_username
  password = var.rabbitmq_password
}

resource "rabbitmq_policy" "_busbridge_limit_4_size_1073741824_ttl_3600000_90035625" {
  name  = "busbridge.limit-4.size-1073741824.ttl-3600000"
  vhost = "/"
  policy {
    pattern  = "^orders$"
    priority = 50
    apply_to = "queues"
    definition = {
      "delivery-limit"   = 4
      "max-length-bytes" = 1073741824
      "message-ttl"      = 3600000
    }
  }
}

resource "rabbitmq_policy" "_busbridge_dead_letters_92e96ff1" {
  name  = "busbridge.dead-letters"
  vhost = "/"
  policy {
    pattern  = "^.+/\\$deadletterqueue$"
    priority = 1000
    apply_to = "queues"
    definition = {
      "delivery-limit" = 2147483647
    }
  }
}

resource "rabbitmq_policy" "_busbridge_sink_46a4c31a" {
  name  = "busbridge.sink"
  vhost = "/"
  policy {
    pattern  = "^\\$sb/sink$"
    priority = 1000
    apply_to = "queues"
    definition = {
      "max-length" = 0
    }
  }
}

resource "rabbitmq_exchange" "_sb_other_deaths_405378b6" {
  name  = "$sb/other-deaths"
  vhost = "/"
  settings {
    type    = "direct"
    durable = true
    arguments = {
      "busbridge-schema" = 1
    }
  }
}

resource "rabbitmq_exchange" "_orders_dlx_1d74869a" {
  name  = "orders/$dlx"
  vhost = "/"
  settings {
    type    = "headers"
    durable = true
    arguments = {
      "alternate-exchange" = "$sb/other-deaths"
      "busbridge-schema"   = 1
    }
  }
}

resource "rabbitmq_exchange" "_orders" {
  name  = "orders"
  vhost = "/"
  settings {
    type    = "fanout"
    durable = true
    arguments = {
      "busbridge-schema" = 1
    }
  }
}

resource "rabbitmq_queue" "_sb_sink_33a91b94" {
  name  = "$sb/sink"
  vhost = "/"
  settings {
    durable        = true
    arguments_json = "{\"x-queue-type\": \"classic\", \"x-max-length\": 0, \"busbridge-schema\": 1}"
  }
  depends_on = [rabbitmq_policy._busbridge_sink_46a4c31a]
  lifecycle {
    prevent_destroy = true
  }
}

resource "rabbitmq_queue" "_orders_deadletterqueue_3d0b39a4" {
  name  = "orders/$deadletterqueue"
  vhost = "/"
  settings {
    durable        = true
    arguments_json = "{\"x-queue-type\": \"quorum\", \"x-delivery-limit\": 2147483647, \"busbridge-schema\": 1}"
  }
  depends_on = [rabbitmq_policy._busbridge_dead_letters_92e96ff1]
  lifecycle {
    prevent_destroy = true
  }
}

resource "rabbitmq_queue" "_orders" {
  name  = "orders"
  vhost = "/"
  settings {
    durable        = true
    arguments_json = "{\"x-queue-type\": \"quorum\", \"x-dead-letter-exchange\": \"orders/$dlx\", \"x-dead-letter-routing-key\": \"orders/$deadletterqueue\", \"x-dead-letter-strategy\": \"at-least-once\", \"x-overflow\": \"reject-publish\", \"busbridge-schema\": 1}"
  }
  depends_on = [rabbitmq_policy._busbridge_limit_4_size_1073741824_ttl_3600000_90035625]
  lifecycle {
    prevent_destroy = true
  }
}

resource "terraform_data" "_sb_other_deaths_to_orders_deadletterqueue_b6debc08_b2b45b15" {
  triggers_replace = ["bindings/%2F/e/%24sb%2Fother-deaths/q/orders%2F%24deadletterqueue", "{\"routing_key\": \"orders/$deadletterqueue\", \"arguments\": {}}"]
  depends_on       = [rabbitmq_exchange._sb_other_deaths_405378b6, rabbitmq_queue._orders_deadletterqueue_3d0b39a4]
  provisioner "local-exec" {
    command = "quoted() { printf %s \"$1\" | sed 's/[\\\\\"]/\\\\&/g'; }; printf 'user = \"%s\"\\ndata-binary = \"%s\"\\n' \"$(quoted \"$LOGIN\")\" \"$(quoted \"$BODY\")\" | curl --fail --silent --show-error --config - --request \"$VERB\" --header \"content-type: application/json\" \"$URL\""
    environment = {
      LOGIN = "${var.rabbitmq_username}:${var.rabbitmq_password}"
      VERB  = "POST"
      BODY  = self.triggers_replace[1]
      URL   = "${var.rabbitmq_endpoint}/api/${self.triggers_replace[0]}"
    }
  }
}

resource "terraform_data" "_orders_dlx_to_orders_deadletterqueue_9a8e4e26_3594c75f" {
  triggers_replace = ["bindings/%2F/e/orders%2F%24dlx/q/orders%2F%24deadletterqueue", "{\"routing_key\": \"orders/$deadletterqueue\", \"arguments\": {\"x-match\": \"all-with-x\", \"x-first-death-reason\": \"delivery_limit\"}}"]
  depends_on       = [rabbitmq_exchange._orders_dlx_1d74869a, rabbitmq_queue._orders_deadletterqueue_3d0b39a4]
  provisioner "local-exec" {
    command = "quoted() { printf %s \"$1\" | sed 's/[\\\\\"]/\\\\&/g'; }; printf 'user = \"%s\"\\ndata-binary = \"%s\"\\n' \"$(quoted \"$LOGIN\")\" \"$(quoted \"$BODY\")\" | curl --fail --silent --show-error --config - --request \"$VERB\" --header \"content-type: application/json\" \"$URL\""
    environment = {
      LOGIN = "${var.rabbitmq_username}:${var.rabbitmq_password}"
      VERB  = "POST"
      BODY  = self.triggers_replace[1]
      URL   = "${var.rabbitmq_endpoint}/api/${self.triggers_replace[0]}"
    }
  }
}

resource "terraform_data" "_orders_dlx_to_orders_deadletterqueue_9a8e4e26_de1fe358" {
  triggers_replace = ["bindings/%2F/e/orders%2F%24dlx/q/orders%2F%24deadletterqueue", "{\"routing_key\": \"orders/$deadletterqueue\", \"arguments\": {\"x-match\": \"all-with-x\", \"x-first-death-reason\": \"expired\"}}"]
  depends_on       = [rabbitmq_exchange._orders_dlx_1d74869a, rabbitmq_queue._orders_deadletterqueue_3d0b39a4]
  provisioner "local-exec" {
    command = "quoted() { printf %s \"$1\" | sed 's/[\\\\\"]/\\\\&/g'; }; printf 'user = \"%s\"\\ndata-binary = \"%s\"\\n' \"$(quoted \"$LOGIN\")\" \"$(quoted \"$BODY\")\" | curl --fail --silent --show-error --config - --request \"$VERB\" --header \"content-type: application/json\" \"$URL\""
    environment = {
      LOGIN = "${var.rabbitmq_username}:${var.rabbitmq_password}"
      VERB  = "POST"
      BODY  = self.triggers_replace[1]
      URL   = "${var.rabbitmq_endpoint}/api/${self.triggers_replace[0]}"
    }
  }
}

resource "terraform_data" "_orders_dlx_to_orders_deadletterqueue_9a8e4e26_a758dd18" {
  triggers_replace = ["bindings/%2F/e/orders%2F%24dlx/q/orders%2F%24deadletterqueue", "{\"routing_key\": \"orders/$deadletterqueue\", \"arguments\": {\"x-match\": \"all-with-x\", \"x-first-death-reason\": \"rejected\"}}"]
  depends_on       = [rabbitmq_exchange._orders_dlx_1d74869a, rabbitmq_queue._orders_deadletterqueue_3d0b39a4]
  provisioner "local-exec" {
    command = "quoted() { printf %s \"$1\" | sed 's/[\\\\\"]/\\\\&/g'; }; printf 'user = \"%s\"\\ndata-binary = \"%s\"\\n' \"$(quoted \"$LOGIN\")\" \"$(quoted \"$BODY\")\" | curl --fail --silent --show-error --config - --request \"$VERB\" --header \"content-type: application/json\" \"$URL\""
    environment = {
      LOGIN = "${var.rabbitmq_username}:${var.rabbitmq_password}"
      VERB  = "POST"
      BODY  = self.triggers_replace[1]
      URL   = "${var.rabbitmq_endpoint}/api/${self.triggers_replace[0]}"
    }
  }
}

resource "rabbitmq_binding" "_orders_to_orders_642353cb_ea85f9fa" {
  source           = rabbitmq_exchange._orders.name
  vhost            = "/"
  destination      = rabbitmq_queue._orders.name
  destination_type = "queue"
  routing_key      = ""
}
