// Runs named scenarios of the unmodified administration client of @azure/service-bus and prints one
// JSON object a scenario: {"scenario", "ok", "detail"}.
//
//   NODE_EXTRA_CA_CERTS=ca.pem node administration.mjs CONNECTION_STRING PREFIX [SCENARIO...]
//
// What is made has a name that begins with the prefix.
import assert from "node:assert/strict";
import { ServiceBusAdministrationClient } from "@azure/service-bus";

const [connectionString, prefix, ...wanted] = process.argv.slice(2);
const admin = new ServiceBusAdministrationClient(connectionString, { retryOptions: { maxRetries: 0 } });

async function expectError(code, statusCode, action) {
  const error = await action().then(
    () => assert.fail(`no error ${code}`),
    (error) => error,
  );
  assert.equal(error.code, code, error.message);
  assert.equal(error.statusCode, statusCode);
  return error.message;
}

async function all(pages) {
  const found = [];
  for await (const each of pages) found.push(each);
  return found;
}

const properties = {
  lockDuration: "PT13S",
  maxDeliveryCount: 14,
  defaultMessageTimeToLive: "P2DT0.005S",
  autoDeleteOnIdle: "PT7M1S",
  deadLetteringOnMessageExpiration: true,
  requiresSession: true,
  enableBatchedOperations: false,
  userMetadata: "<who & why>",
};

function assertHas(found, expected) {
  for (const [name, value] of Object.entries(expected)) assert.deepEqual(found[name], value, name);
}

const scenarios = {
  async queue() {
    const name = `${prefix}/a/Queue`;
    const given = {
      ...properties,
      duplicateDetectionHistoryTimeWindow: "PT12M",
      requiresDuplicateDetection: true,
      maxSizeInMegabytes: 3072,
    };
    assertHas(await admin.createQueue(name, given), { name, status: "Active", ...given });
    const queue = await admin.getQueue(name);
    assertHas(queue, { name, availabilityStatus: "Available", ...given });
    assert.equal(await admin.queueExists(name), true);

    queue.maxDeliveryCount = 3;
    queue.status = "SendDisabled";
    assertHas(await admin.updateQueue(queue), { maxDeliveryCount: 3, status: "SendDisabled" });
    assertHas(await admin.getQueueRuntimeProperties(name), {
      name,
      totalMessageCount: 0,
      activeMessageCount: 0,
      scheduledMessageCount: 0,
      deadLetterMessageCount: 0,
      transferMessageCount: 0,
    });
    await admin.deleteQueue(name);
    assert.equal(await admin.queueExists(name), false);
  },

  async forwarding() {
    const target = `${prefix}-target`;
    await admin.createQueue(target);
    const queue = await admin.createQueue(`${prefix}-forwards`, {
      forwardTo: target,
      forwardDeadLetteredMessagesTo: target,
    });
    const host = connectionString.match(/Endpoint=(sb:\/\/[^;]*)/)[1];
    assertHas(queue, {
      forwardTo: `${host}/${target}`,
      forwardDeadLetteredMessagesTo: `${host}/${target}`,
    });
  },

  async access() {
    const rule = {
      claimType: "SharedAccessKey",
      accessRights: ["Listen"],
      keyName: "reader",
      primaryKey: "one",
      secondaryKey: "two",
    };
    const queue = await admin.createQueue(`${prefix}-access`, { authorizationRules: [rule] });
    assertHas(queue.authorizationRules[0], rule);
  },

  async errors() {
    const name = `${prefix}-errors`;
    await admin.createQueue(name);
    const said = await expectError("MessageEntityAlreadyExistsError", 409, () => admin.createQueue(name));
    assert.match(said, /^SubCode=40900\. Conflict\./);
    await expectError("MessageEntityNotFoundError", 404, () => admin.deleteQueue(`${name}-none`));
    await expectError("MessageEntityNotFoundError", 404, () => admin.getSubscription(name, "none"));
    await expectError("ServiceError", 400, () =>
      admin.createQueue(`${name}-bad`, { lockDuration: "PT6M" }),
    );
    const wrong = new ServiceBusAdministrationClient(
      connectionString.replace(/SharedAccessKey=[^;]*/, "SharedAccessKey=wrong"),
      { retryOptions: { maxRetries: 0 } },
    );
    await expectError("UnauthorizedRequestError", 401, () => wrong.getQueue(name));
  },

  async topic() {
    const name = `${prefix}/a/Topic`;
    const given = {
      defaultMessageTimeToLive: "P2DT0.005S",
      autoDeleteOnIdle: "PT7M1S",
      maxSizeInMegabytes: 3072,
      supportOrdering: true,
      userMetadata: "<who & why>",
    };
    assertHas(await admin.createTopic(name, given), { name, status: "Active", ...given });
    const topic = await admin.getTopic(name);
    assertHas(topic, { name, ...given });

    const subscription = await admin.createSubscription(name, "Sub", properties);
    assertHas(subscription, { topicName: name, subscriptionName: "Sub", ...properties });
    assertHas(await admin.getSubscription(name, "Sub"), { topicName: name, ...properties });
    subscription.maxDeliveryCount = 3;
    assertHas(await admin.updateSubscription(subscription), { maxDeliveryCount: 3 });
    assertHas(await admin.getTopicRuntimeProperties(name), { subscriptionCount: 1 });
    assertHas(await admin.getSubscriptionRuntimeProperties(name, "Sub"), {
      totalMessageCount: 0,
      activeMessageCount: 0,
    });
    topic.userMetadata = "changed";
    assertHas(await admin.updateTopic(topic), { userMetadata: "changed" });
    await admin.deleteSubscription(name, "Sub");
    assert.equal(await admin.subscriptionExists(name, "Sub"), false);
    await admin.deleteTopic(name);
    assert.equal(await admin.topicExists(name), false);
  },

  async rules() {
    const topic = `${prefix}-rules`;
    await admin.createTopic(topic);
    await admin.createSubscription(topic, "sub");
    const at = new Date("2026-07-05T11:12:13Z");
    const correlation = {
      correlationId: "c",
      subject: "l",
      messageId: "m",
      applicationProperties: { text: "a<b", whole: 7, yes: true, at },
    };
    const sql = { sqlExpression: "color = @color", sqlParameters: { "@color": "red" } };
    const action = { sqlExpression: "SET priority = 'low'" };
    assertHas((await admin.createRule(topic, "sub", "one", correlation)).filter, correlation);
    assertHas(await admin.createRule(topic, "sub", "two", sql, action), { name: "two" });
    const rule = await admin.getRule(topic, "sub", "two");
    assertHas(rule.filter, sql);
    assertHas(rule.action, action);
    rule.filter = { sqlExpression: "a = 1" };
    assertHas((await admin.updateRule(topic, "sub", rule)).filter, rule.filter);
    await admin.deleteRule(topic, "sub", "$Default");
    const names = (await all(admin.listRules(topic, "sub"))).map((each) => each.name);
    assert.deepEqual(names, ["one", "two"]);
    assert.equal(await admin.ruleExists(topic, "sub", "three"), false);
  },

  async lists() {
    const names = [0, 1, 2, 3].map((number) => `${prefix}-lists-${number}`);
    for (const name of names) await admin.createQueue(name);
    const found = (await all(admin.listQueues())).map((each) => each.name);
    assert.deepEqual(found.filter((name) => names.includes(name)), names);
    const paged = [];
    for await (const page of admin.listQueues().byPage({ maxPageSize: 3 })) {
      assert.ok(page.length <= 3);
      paged.push(...page.map((each) => each.name));
    }
    assert.deepEqual(paged, found);
    const counted = await all(admin.listQueuesRuntimeProperties());
    assert.equal(counted.length, found.length);
    for (const name of names) await admin.deleteQueue(name);
  },

  async namespace() {
    assertHas(await admin.getNamespaceProperties(), {
      name: "sbemulatorns",
      messagingSku: "Standard",
    });
  },
};

for (const name of wanted.length > 0 ? wanted : Object.keys(scenarios)) {
  const result = { scenario: name, ok: true, detail: "" };
  try {
    await scenarios[name]();
  } catch (error) {
    result.ok = false;
    result.detail = `${error.code ?? error.name}: ${error.message}\n${error.stack}`;
  }
  console.log(JSON.stringify(result));
}
process.exit(0);
