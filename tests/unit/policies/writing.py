"""Small writers of each input format, so that what they write can be read back."""

from __future__ import annotations

import json
from typing import Any
from xml.sax.saxutils import escape

from bridge.model import entity as model
from bridge.model.duration import MAX_MS
from bridge.model.properties import PROPERTIES, camel
from bridge.topology import definitions
from policies.readers.filters import CORRELATION_FIELDS
from policies.readers.terraform import NAMES
from policies.writers.emulator import correlation, properties

ID = "/subscriptions/0/resourceGroups/rg/providers/Microsoft.ServiceBus/namespaces/"


def _action(rule: model.Rule) -> dict[str, Any]:
    return {"Action": {"SqlExpression": rule.action}} if rule.action else {}


def _expression(given: model.Filter) -> str | None:
    match given:
        case model.TrueFilter():
            return "1=1"
        case model.FalseFilter():
            return "1 = 0"
        case model.SqlFilter(expression=expression):
            return expression
    return None


def _correlation(given: model.Filter) -> dict[str, Any]:
    assert isinstance(given, model.CorrelationFilter)
    return correlation(given)


def _rule(rule: model.Rule) -> dict[str, Any]:
    expression = _expression(rule.filter)
    if expression is not None:
        body = {"FilterType": "SqlFilter", "SqlFilter": {"SqlExpression": expression}}
    else:
        body = {
            "FilterType": "CorrelationFilter",
            "CorrelationFilter": _correlation(rule.filter),
        }
    return body | _action(rule)


def _camel(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            camel(key): each if key == "Properties" else _camel(each) for key, each in value.items()
        }
    return value


def _access(rule: model.AuthorizationRule) -> dict[str, Any]:
    return {
        "rights": sorted(right.value for right in rule.rights),
        "primaryKey": rule.primary_key,
        "secondaryKey": rule.secondary_key,
    }


def _resources(namespace: model.Namespace) -> list[tuple[str, list[str], dict[str, Any]]]:
    """Type below `namespaces`, names, properties."""
    found: list[tuple[str, list[str], dict[str, Any]]] = []
    found += [("authorizationRules", [r.name], _access(r)) for r in namespace.authorization_rules]
    for entity in definitions.entities(namespace):
        if isinstance(entity, model.Subscription):
            names, kind = [entity.topic, entity.name], "topics/subscriptions"
        else:
            names = [entity.name]
            kind = "queues" if isinstance(entity, model.Queue) else "topics"
            for rule in entity.authorization_rules:
                found.append((f"{kind}/authorizationRules", [*names, rule.name], _access(rule)))
        found.append((kind, names, _camel(properties(entity))))
        if isinstance(entity, model.Subscription):
            for each in entity.rules:
                body = _camel(_rule(each))
                found.append((f"{kind}/rules", [*names, each.name], body))
    return found


def _bracketed(value: Any) -> Any:
    """A text that begins with a bracket would be an expression."""
    if isinstance(value, dict):
        return {_bracketed(key): _bracketed(each) for key, each in value.items()}
    is_like = isinstance(value, str) and value.startswith("[")
    return "[" + value if is_like and (value.endswith("]") or value.startswith("[[")) else value


def arm(namespace: model.Namespace) -> str:
    """Write an ARM template with full names."""
    resources = [
        {
            "type": f"Microsoft.ServiceBus/namespaces/{kind}",
            "apiVersion": "2021-11-01",
            "name": "/".join([namespace.name, *(name.replace("/", "~") for name in names)]),
            "properties": _bracketed(body),
        }
        for kind, names, body in _resources(namespace)
    ]
    schema = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
    own = {"type": "Microsoft.ServiceBus/namespaces", "name": namespace.name}
    return json.dumps({"$schema": schema, "resources": [*resources, own]})


def az(namespace: model.Namespace) -> str:
    """Write what az lists, properties at the top."""
    found: list[dict[str, Any]] = [{"id": ID + namespace.name, "name": namespace.name}]
    for kind, names, body in _resources(namespace):
        segments = [namespace.name]
        for part, name in zip(kind.split("/"), names, strict=True):
            segments += [part, name.replace("/", "~")]
        found.append({"id": ID + "/".join(segments), "name": segments[-1], **body})
    return json.dumps(found)


def terraform(namespace: model.Namespace) -> str:
    """Write a state of the azurerm provider."""
    old = {azure: own for own, azure in NAMES.items() if not own.startswith("enable_")}
    resources: list[dict[str, Any]] = []

    def add(kind: str, values: dict[str, Any]) -> None:
        name = f"r{len(resources)}"
        kind = f"azurerm_servicebus_{kind}"
        resources.append(
            {"address": f"{kind}.{name}", "mode": "managed", "type": kind, "name": name}
            | {"values": values}
        )

    def access(owner: str, identity: str, rule: model.AuthorizationRule) -> None:
        rights = {r.value.lower(): r in rule.rights for r in model.Right}
        keys = {"primary_key": rule.primary_key, "secondary_key": rule.secondary_key}
        own = {"name": rule.name, f"{owner}_id": identity}
        add(f"{owner}_authorization_rule", own | rights | keys)

    add("namespace", {"name": namespace.name, "sku": namespace.tier.value})
    base = ID + namespace.name
    for rule in namespace.authorization_rules:
        access("namespace", base, rule)
    for entity in definitions.entities(namespace):
        values = {old[n]: v for n, v in properties(entity).items() if n in old}
        path = f"{base}/topics/"
        if isinstance(entity, model.Subscription):
            topic = path + entity.topic.replace("/", "~")
            add("subscription", {"name": entity.name, "topic_id": topic, **values})
            for each in entity.rules:
                own = {"name": each.name, "subscription_id": f"{topic}/subscriptions/{entity.name}"}
                add("subscription_rule", own | _terraform_rule(each))
            continue
        kind = "queue" if isinstance(entity, model.Queue) else "topic"
        add(kind, {"name": entity.name, "namespace_id": base, **values})
        for rule in entity.authorization_rules:
            access(kind, f"{base}/{kind}s/{entity.name.replace('/', '~')}", rule)
    root = {"root_module": {"resources": resources}}
    return json.dumps({"format_version": "1.0", "terraform_version": "1.9.8", "values": root})


def _terraform_rule(rule: model.Rule) -> dict[str, Any]:
    expression = _expression(rule.filter)
    if expression is not None:
        return {"filter_type": "SqlFilter", "sql_filter": expression, "action": rule.action}
    assert isinstance(rule.filter, model.CorrelationFilter)
    block = {field: getattr(rule.filter, field) or "" for field in CORRELATION_FIELDS.values()}
    block["properties"] = dict(rule.filter.properties)  # type: ignore[assignment]
    return {
        "filter_type": "CorrelationFilter",
        "correlation_filter": [block],
        "action": rule.action,
    }


def _element(name: str, text: Any) -> str:
    shown = str(text).lower() if isinstance(text, bool) else str(text)
    return f"<{name}>{escape(shown)}</{name}>"


def _typed(value: Any) -> tuple[str, str]:
    if isinstance(value, bool):
        return "boolean", str(value).lower()
    if isinstance(value, int):
        return "long", str(value)
    return ("double", repr(value)) if isinstance(value, float) else ("string", escape(value))


def _xml_rule(rule: model.Rule) -> str:
    match rule.filter:
        case model.TrueFilter():
            body = '<Filter i:type="TrueFilter"><SqlExpression>1=1</SqlExpression></Filter>'
        case model.FalseFilter():
            body = '<Filter i:type="FalseFilter"><SqlExpression>1=0</SqlExpression></Filter>'
        case model.SqlFilter(expression=expression):
            inner = _element("SqlExpression", expression)
            body = f'<Filter i:type="SqlFilter">{inner}</Filter>'
        case model.CorrelationFilter(properties=pairs):
            fields = _correlation(rule.filter)
            fields.pop("Properties", None)
            inner = "".join(_element(name, value) for name, value in fields.items())
            found = ""
            for key, value in pairs:
                kind, text = _typed(value)
                inner_value = f'<Value i:type="d6p1:{kind}">{text}</Value>'
                pair = f"{_element('Key', key)}{inner_value}"
                found += f"<KeyValueOfstringanyType>{pair}</KeyValueOfstringanyType>"
            inner += f"<Properties>{found}</Properties>"
            body = f'<Filter i:type="CorrelationFilter">{inner}</Filter>'
    action = '<Action i:type="EmptyRuleAction"/>'
    if rule.action:
        action = f'<Action i:type="SqlRuleAction">{_element("SqlExpression", rule.action)}</Action>'
    return body + action + _element("Name", rule.name)


def _xml_access(rules: tuple[model.AuthorizationRule, ...]) -> str:
    inner = "".join(
        '<AuthorizationRule i:type="SharedAccessAuthorizationRule"><ClaimType>SharedAccessKey'
        "</ClaimType><ClaimValue>None</ClaimValue><Rights>"
        + "".join(f"<AccessRights>{right.value}</AccessRights>" for right in rule.rights)
        + "</Rights>"
        + _element("KeyName", rule.name)
        + _element("PrimaryKey", rule.primary_key)
        + _element("SecondaryKey", rule.secondary_key)
        + "</AuthorizationRule>"
        for rule in rules
    )
    return f"<AuthorizationRules>{inner}</AuthorizationRules>"


def atom(namespace: model.Namespace) -> str:
    """Write one feed of everything."""
    host = f"https://{namespace.name}.servicebus.windows.net"
    entries = [("$namespaceinfo", "NamespaceInfo", _element("Name", namespace.name))]
    for entity in definitions.entities(namespace):
        body = "".join(_element(name, value) for name, value in properties(entity).items())
        path = entity.path
        if not isinstance(entity, model.Subscription):
            body += _xml_access(entity.authorization_rules)
        entries.append((path, f"{type(entity).__name__}Description", body))
        if isinstance(entity, model.Subscription):
            for rule in entity.rules:
                name = f"{path}/Rules/{rule.name}"
                entries.append((name, "RuleDescription", _xml_rule(rule)))
    feed = "".join(
        f"<entry><id>{host}/{path}?api-version=2021-05</id><content><{kind} "
        'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect" '
        'xmlns:d6p1="http://www.w3.org/2001/XMLSchema" '
        f'xmlns:i="http://www.w3.org/2001/XMLSchema-instance">{body}</{kind}></content></entry>'
        for path, kind, body in entries
    )
    return f'<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom">{feed}</feed>'


def _timespan(duration_ms: int) -> str:
    if duration_ms == MAX_MS:
        return "10675199.02:48:05.4775807"
    seconds, milliseconds = divmod(duration_ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    text = f"{hours:02}:{minutes:02}:{seconds:02}"
    text = f"{days}.{text}" if days else text
    return text + (f".{milliseconds:03}0000" if milliseconds else "")


def explorer(namespace: model.Namespace) -> str:
    """Write an export of Service Bus Explorer."""
    known = {"DeadLetteringOnMessageExpiration", "DeadLetteringOnFilterEvaluationExceptions"}
    known.add("FilteringMessagesBeforePublishing")

    def body(entity: model.Entity) -> str:
        found = ""
        for name, value in properties(entity).items():
            field = PROPERTIES[name].field
            if field.endswith("_ms"):
                value = _timespan(getattr(entity, field))
            elif isinstance(value, bool):
                value = str(value)
            tag = f"Enable{name}" if name in known else name
            found += f"<{tag}>{escape(str(value))}</{tag}>"
        return found

    queues = "".join(
        f"<Queue>{body(each)}{_element('Path', each.name)}{_explorer_access(each)}</Queue>"
        for each in namespace.queues
    )
    topics = ""
    for topic in namespace.topics:
        inner = "".join(
            f"<Subscription>{body(each)}{_element('Name', each.name)}<Rules>"
            + "".join(map(_explorer_rule, each.rules))
            + "</Rules></Subscription>"
            for each in topic.subscriptions
        )
        own = body(topic) + _element("Path", topic.name) + _explorer_access(topic)
        topics += f"<Topic>{own}<Subscriptions>{inner}</Subscriptions></Topic>"
    return (
        f'<Entities serviceBusNamespace="{namespace.name}" '
        'xmlns="http://schemas.microsoft.com/servicebusexplorer">'
        f"<Queues>{queues}</Queues><Topics>{topics}</Topics></Entities>"
    )


def _explorer_access(entity: model.Queue | model.Topic) -> str:
    inner = "".join(
        f"<SharedAccessAuthorizationRule>{_element('KeyName', rule.name)}"
        + _element("PrimaryKey", rule.primary_key)
        + _element("SecondaryKey", rule.secondary_key)
        + "<Rights>"
        + "".join(f"<Right>{right.value}</Right>" for right in rule.rights)
        + "</Rights></SharedAccessAuthorizationRule>"
        for rule in entity.authorization_rules
    )
    return f"<AuthorizationRules>{inner}</AuthorizationRules>" if inner else ""


def _explorer_rule(rule: model.Rule) -> str:
    expression = _expression(rule.filter)
    if isinstance(rule.filter, model.TrueFilter):
        body = "<Filter />"
    elif expression is not None:
        inner = _element("SqlExpression", expression)
        body = f"<Filter><SqlFilter>{inner}</SqlFilter></Filter>"
    else:
        fields = _correlation(rule.filter)
        pairs = fields.pop("Properties", {})
        inner = "".join(_element(name, value) for name, value in fields.items())
        texts = "".join(_element("Property", f"{key}: {value}") for key, value in pairs.items())
        inner += f"<Properties>{texts}</Properties>"
        body = f"<Filter><CorrelationFilter>{inner}</CorrelationFilter></Filter>"
    action = "<Action><EmptyRuleAction /></Action>"
    if rule.action:
        inner = _element("SqlExpression", rule.action)
        action = f"<Action><SqlRuleAction>{inner}</SqlRuleAction></Action>"
    return f"<Rule>{body}{action}{_element('Name', rule.name)}</Rule>"
