// Runs named scenarios of the unmodified administration client of Go and prints one JSON object a
// scenario: {"scenario", "ok", "detail"}.
//
//	SSL_CERT_FILE=ca.pem administration CONNECTION_STRING PREFIX
//
// What is made has a name that begins with the prefix.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

type bus struct {
	ctx    context.Context
	prefix string
	client *admin.Client
}

var scenarios = []struct {
	name string
	run  func(*bus)
}{
	{"queue", (*bus).queue},
	{"errors", (*bus).errors},
	{"topic", (*bus).topic},
	{"rules", (*bus).rules},
	{"lists", (*bus).lists},
	{"namespace", (*bus).namespace},
}

func (b *bus) queue() {
	name := b.prefix + "/a/Queue"
	given := admin.QueueProperties{
		LockDuration:             to.Ptr("PT13S"),
		MaxDeliveryCount:         to.Ptr(int32(14)),
		DefaultMessageTimeToLive: to.Ptr("P2DT0.005S"),
		AutoDeleteOnIdle:         to.Ptr("PT7M1S"),
		RequiresSession:          to.Ptr(true),
		UserMetadata:             to.Ptr("<who & why>"),
		AuthorizationRules: []admin.AuthorizationRule{{
			KeyName:      to.Ptr("reader"),
			PrimaryKey:   to.Ptr("one"),
			SecondaryKey: to.Ptr("two"),
			AccessRights: []admin.AccessRight{admin.AccessRightListen},
		}},
	}
	made, err := b.client.CreateQueue(b.ctx, name, &admin.CreateQueueOptions{Properties: &given})
	must(err)
	read, err := b.client.GetQueue(b.ctx, name, nil)
	must(err)
	for _, found := range []admin.QueueProperties{made.QueueProperties, read.QueueProperties} {
		equal(given.LockDuration, found.LockDuration)
		equal(given.MaxDeliveryCount, found.MaxDeliveryCount)
		equal(given.DefaultMessageTimeToLive, found.DefaultMessageTimeToLive)
		equal(given.AutoDeleteOnIdle, found.AutoDeleteOnIdle)
		equal(given.RequiresSession, found.RequiresSession)
		equal(given.UserMetadata, found.UserMetadata)
		equal("reader", *found.AuthorizationRules[0].KeyName)
		equal("two", *found.AuthorizationRules[0].SecondaryKey)
	}
	changed := read.QueueProperties
	changed.MaxDeliveryCount = to.Ptr(int32(3))
	updated, err := b.client.UpdateQueue(b.ctx, name, changed, nil)
	must(err)
	equal(int32(3), *updated.MaxDeliveryCount)
	counts, err := b.client.GetQueueRuntimeProperties(b.ctx, name, nil)
	must(err)
	equal(int64(0), counts.TotalMessageCount)
	equal(true, time.Since(counts.CreatedAt) < time.Minute)
	_, err = b.client.DeleteQueue(b.ctx, name, nil)
	must(err)
	gone, err := b.client.GetQueue(b.ctx, name, nil)
	must(err)
	equal(true, gone == nil)
}

func (b *bus) errors() {
	name := b.prefix + "-errors"
	_, err := b.client.CreateQueue(b.ctx, name, nil)
	must(err)
	_, err = b.client.CreateQueue(b.ctx, name, nil)
	expectStatus(409, err)
	_, err = b.client.DeleteQueue(b.ctx, name+"-none", nil)
	expectStatus(404, err)
	_, err = b.client.CreateQueue(b.ctx, name+"-bad", &admin.CreateQueueOptions{
		Properties: &admin.QueueProperties{LockDuration: to.Ptr("PT6M")},
	})
	expectStatus(400, err)
}

func (b *bus) topic() {
	name := b.prefix + "/a/Topic"
	made, err := b.client.CreateTopic(b.ctx, name, &admin.CreateTopicOptions{
		Properties: &admin.TopicProperties{UserMetadata: to.Ptr("kept")},
	})
	must(err)
	equal("kept", *made.UserMetadata)
	subscription, err := b.client.CreateSubscription(b.ctx, name, "Sub", &admin.CreateSubscriptionOptions{
		Properties: &admin.SubscriptionProperties{LockDuration: to.Ptr("PT13S")},
	})
	must(err)
	equal("PT13S", *subscription.LockDuration)
	changed := subscription.SubscriptionProperties
	changed.MaxDeliveryCount = to.Ptr(int32(3))
	updated, err := b.client.UpdateSubscription(b.ctx, name, "Sub", changed, nil)
	must(err)
	equal(int32(3), *updated.MaxDeliveryCount)
	facts, err := b.client.GetTopicRuntimeProperties(b.ctx, name, nil)
	must(err)
	equal(int32(1), facts.SubscriptionCount)
	counts, err := b.client.GetSubscriptionRuntimeProperties(b.ctx, name, "Sub", nil)
	must(err)
	equal(int64(0), counts.TotalMessageCount)
	_, err = b.client.DeleteSubscription(b.ctx, name, "Sub", nil)
	must(err)
	gone, err := b.client.GetSubscription(b.ctx, name, "Sub", nil)
	must(err)
	equal(true, gone == nil)
	_, err = b.client.DeleteTopic(b.ctx, name, nil)
	must(err)
}

func (b *bus) rules() {
	topic := b.prefix + "-rules"
	_, err := b.client.CreateTopic(b.ctx, topic, nil)
	must(err)
	_, err = b.client.CreateSubscription(b.ctx, topic, "sub", nil)
	must(err)
	filters := map[string]admin.RuleFilter{
		"correlation": &admin.CorrelationFilter{
			CorrelationID:         to.Ptr("c"),
			ApplicationProperties: map[string]any{"text": "a<b", "yes": true},
		},
		"sql":   &admin.SQLFilter{Expression: "color = @color", Parameters: map[string]any{"@color": "red"}},
		"true":  &admin.TrueFilter{},
		"false": &admin.FalseFilter{},
	}
	for name, filter := range filters {
		_, err = b.client.CreateRule(b.ctx, topic, "sub", &admin.CreateRuleOptions{Name: &name, Filter: filter})
		must(err)
		read, err := b.client.GetRule(b.ctx, topic, "sub", name, nil)
		must(err)
		equal(filter, read.Filter)
	}
	_, err = b.client.UpdateRule(b.ctx, topic, "sub", admin.RuleProperties{
		Name: "sql", Filter: &admin.SQLFilter{Expression: "a = 1"},
		Action: &admin.SQLAction{Expression: "SET b = 2"},
	})
	must(err)
	read, err := b.client.GetRule(b.ctx, topic, "sub", "sql", nil)
	must(err)
	equal("SET b = 2", read.Action.(*admin.SQLAction).Expression)
	_, err = b.client.DeleteRule(b.ctx, topic, "sub", "$Default", nil)
	must(err)
	count := 0
	for pager := b.client.NewListRulesPager(topic, "sub", nil); pager.More(); {
		page, err := pager.NextPage(b.ctx)
		must(err)
		count += len(page.Rules)
	}
	equal(len(filters), count)
}

func (b *bus) lists() {
	made := map[string]bool{}
	for number := range 3 {
		name := fmt.Sprintf("%s-lists-%d", b.prefix, number)
		_, err := b.client.CreateQueue(b.ctx, name, nil)
		must(err)
		made[name] = true
	}
	options := &admin.ListQueuesOptions{MaxPageSize: 2}
	for pager := b.client.NewListQueuesPager(options); pager.More(); {
		page, err := pager.NextPage(b.ctx)
		must(err)
		equal(true, len(page.Queues) <= 2)
		for _, queue := range page.Queues {
			delete(made, queue.QueueName)
		}
	}
	equal(0, len(made))
}

func (b *bus) namespace() {
	found, err := b.client.GetNamespaceProperties(b.ctx, nil)
	must(err)
	equal("sbemulatorns", found.Name)
	equal("Standard", found.SKU)
}

func expectStatus(status int, err error) {
	var found *azcore.ResponseError
	if !errors.As(err, &found) || found.StatusCode != status {
		panic(fmt.Sprintf("error %v, not %d", err, status))
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func equal[T any](expected, found T) {
	if !reflect.DeepEqual(expected, found) {
		panic(fmt.Sprintf("%v, not %v", found, expected))
	}
}

func run(b *bus, do func(*bus)) (ok bool, detail string) {
	defer func() {
		if caught := recover(); caught != nil {
			ok, detail = false, fmt.Sprintf("%v\n%s", caught, debug.Stack())
		}
	}()
	do(b)
	return true, ""
}

func main() {
	client, err := admin.NewClientFromConnectionString(os.Args[1], &admin.ClientOptions{
		ClientOptions: azcore.ClientOptions{Retry: policy.RetryOptions{MaxRetries: -1}},
	})
	must(err)
	for _, scenario := range scenarios {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		ok, detail := run(&bus{ctx: ctx, prefix: os.Args[2], client: client}, scenario.run)
		cancel()
		line, err := json.Marshal(map[string]any{"scenario": scenario.name, "ok": ok, "detail": detail})
		must(err)
		fmt.Println(string(line))
	}
}
