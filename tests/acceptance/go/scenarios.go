// Runs named scenarios of the unmodified Go client against a connection string and prints one JSON
// object a scenario: {"scenario", "ok", "detail"}.
//
//	scenarios CONNECTION_STRING QUEUE [SCENARIO...]
//
// The queue must be empty, with a lock duration of 5 s and at least 10 deliveries; there is another,
// QUEUE-sessions, that requires sessions. This client shows the delivery count of the wire plus one.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"runtime/debug"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const (
	lock     = 5 * time.Second
	patience = 2 * time.Minute
	silence  = time.Second
)

type bus struct {
	ctx    context.Context
	text   string
	queue  string
	client *azservicebus.Client
}

type scenario struct {
	name string
	run  func(*bus) string
}

var scenarios = []scenario{
	{"single_send", (*bus).singleSend},
	{"batch_send", (*bus).batchSend},
	{"abandon", (*bus).abandon},
	{"abandon_with_properties", (*bus).abandonWithProperties},
	{"dead_letter", (*bus).deadLetter},
	{"dead_letter_without_reason", (*bus).deadLetterWithoutReason},
	{"defer", (*bus).deferMessage},
	{"peek", (*bus).peek},
	{"close_with_unsettled", (*bus).closeWithUnsettled},
	{"settle_after_close", (*bus).settleAfterClose},
	{"release_unread", (*bus).releaseUnread},
	{"renew_lock", (*bus).renewLock},
	{"lock_lost", (*bus).lockLost},
	{"schedule", (*bus).schedule},
	{"schedule_cancel", (*bus).scheduleCancel},
	{"cancel_unknown", (*bus).cancelUnknown},
	{"scheduled_by_property", (*bus).scheduledByProperty},
	{"receive_and_delete", (*bus).receiveAndDelete},
	{"time_to_live", (*bus).timeToLive},
	{"types", (*bus).types},
	{"large", (*bus).large},
	{"too_large", (*bus).tooLarge},
	{"wrong_key", (*bus).wrongKey},
	{"unknown_entity", (*bus).unknownEntity},
	{"strange_values", (*bus).strangeValues},
	{"session_accept", (*bus).sessionAccept},
	{"session_next", (*bus).sessionNext},
	{"session_state", (*bus).sessionState},
	{"session_lock", (*bus).sessionLock},
	{"session_defer", (*bus).sessionDefer},
}

func (b *bus) singleSend() string {
	before := time.Now()
	id := "m1"
	b.send(&azservicebus.Message{Body: []byte("hello"), MessageID: &id})
	receiver := b.receiver(nil)
	message := b.receive(receiver, 1)[0]
	equal("hello", string(message.Body), "body")
	equal("m1", message.MessageID, "message id")
	equal(uint32(1), message.DeliveryCount, "delivery count")
	check(*message.SequenceNumber > 0, "sequence number")
	check(message.EnqueuedTime.After(before.Add(-time.Second)), "enqueued before the send")
	check(!message.EnqueuedTime.After(time.Now()), "enqueued later")
	check(message.LockedUntil.After(time.Now()), "locked until")
	b.complete(receiver, message)
	b.expectSilence(receiver)
	return ""
}

// Another library has sent values that this client cannot read, and a plain message behind them.
func (b *bus) strangeValues() string {
	receiver, err := b.client.NewReceiverForQueue(b.queue+"-strange", nil)
	must(err)
	messages := b.receive(receiver, 2)
	body := messages[0].RawAMQPMessage.Body.Value.(map[string]any)
	equal("x", body["letter"].(string), "a char in the body")
	equal(0, len(body["none"].([]any)), "an empty array")
	equal("[a b]", fmt.Sprint(body["letters"]), "an array of chars")
	equal("0.7", body["price"].(string), "a decimal in the body")
	equal("!", body["last"].(string), "what stands behind them")
	equal("x", messages[0].ApplicationProperties["initial"].(string), "a char as a property")
	equal("7", *messages[0].DeadLetterReason, "a reason that is no text")
	equal("next", string(messages[1].Body), "the next message")
	for _, message := range messages {
		b.complete(receiver, message)
	}
	return ""
}

func (b *bus) batchSend() string {
	sender := b.sender(b.client, b.queue)
	batch, err := sender.NewMessageBatch(b.ctx, nil)
	must(err)
	for i := range 10 {
		must(batch.AddMessage(&azservicebus.Message{Body: fmt.Appendf(nil, "b%d", i)}, nil))
	}
	must(sender.SendMessageBatch(b.ctx, batch, nil))
	receiver := b.receiver(nil)
	messages := b.receive(receiver, 10)
	for i, message := range messages {
		equal(fmt.Sprintf("b%d", i), string(message.Body), "order")
		equal(*messages[0].SequenceNumber+int64(i), *message.SequenceNumber, "sequence number")
		b.complete(receiver, message)
	}
	b.expectSilence(receiver)
	return ""
}

func (b *bus) abandon() string {
	b.send(&azservicebus.Message{Body: []byte("again")})
	receiver := b.receiver(nil)
	first := b.receive(receiver, 1)[0]
	equal(uint32(1), first.DeliveryCount, "first delivery count")
	must(receiver.AbandonMessage(b.ctx, first, nil))
	second := b.receive(receiver, 1)[0]
	equal(uint32(2), second.DeliveryCount, "second delivery count")
	equal(*first.SequenceNumber, *second.SequenceNumber, "sequence number")
	b.complete(receiver, second)
	return ""
}

func (b *bus) abandonWithProperties() string {
	b.send(&azservicebus.Message{
		Body:                  []byte("again"),
		ApplicationProperties: map[string]any{"kept": "yes", "changed": "old"},
	})
	receiver := b.receiver(nil)
	first := b.receive(receiver, 1)[0]
	must(receiver.AbandonMessage(b.ctx, first, &azservicebus.AbandonMessageOptions{
		PropertiesToModify: map[string]any{"changed": "new", "added": int64(7)},
	}))
	second := b.receive(receiver, 1)[0]
	equal(uint32(2), second.DeliveryCount, "delivery count")
	expected := map[string]any{"kept": "yes", "changed": "new", "added": int64(7)}
	equal(expected, second.ApplicationProperties, "properties")
	b.complete(receiver, second)
	return ""
}

func (b *bus) deadLetter() string {
	b.send(&azservicebus.Message{
		Body: []byte("bad"), ApplicationProperties: map[string]any{"a": int64(1)},
	})
	receiver := b.receiver(nil)
	message := b.receive(receiver, 1)[0]
	reason, description := "no good", "it was\nreally bad ☃"
	must(receiver.DeadLetterMessage(b.ctx, message, &azservicebus.DeadLetterOptions{
		Reason: &reason, ErrorDescription: &description,
		PropertiesToModify: map[string]any{"extra": "x"},
	}))
	b.expectSilence(receiver)
	dead := b.deadLetters()
	found := b.receive(dead, 1)[0]
	equal("bad", string(found.Body), "body")
	equal(reason, *found.DeadLetterReason, "reason")
	equal(description, *found.DeadLetterErrorDescription, "description")
	equal(any(int64(1)), found.ApplicationProperties["a"], "own property")
	equal(any("x"), found.ApplicationProperties["extra"], "added property")
	b.complete(dead, found)
	b.expectSilence(dead)
	return ""
}

func (b *bus) deadLetterWithoutReason() string {
	b.send(&azservicebus.Message{Body: []byte("bad")})
	receiver := b.receiver(nil)
	must(receiver.DeadLetterMessage(b.ctx, b.receive(receiver, 1)[0], nil))
	dead := b.deadLetters()
	found := b.receive(dead, 1)[0]
	equal("bad", string(found.Body), "body")
	b.complete(dead, found)
	return ""
}

func (b *bus) deferMessage() string {
	b.send(&azservicebus.Message{Body: []byte("later")})
	receiver := b.receiver(nil)
	message := b.receive(receiver, 1)[0]
	must(receiver.DeferMessage(b.ctx, message, nil))
	deferred, err := receiver.ReceiveDeferredMessages(b.ctx, []int64{*message.SequenceNumber}, nil)
	must(err)
	equal(1, len(deferred), "deferred messages")
	equal("later", string(deferred[0].Body), "body")
	b.complete(receiver, deferred[0])
	return "deferred and received by number"
}

func (b *bus) peek() string {
	b.send(&azservicebus.Message{Body: []byte("seen")})
	receiver := b.receiver(nil)
	peeked, err := receiver.PeekMessages(b.ctx, 1, nil)
	must(err)
	equal(1, len(peeked), "peeked messages")
	equal("seen", string(peeked[0].Body), "body")
	message := b.receive(receiver, 1)[0]
	equal(*message.SequenceNumber, *peeked[0].SequenceNumber, "number")
	from := &azservicebus.PeekMessagesOptions{FromSequenceNumber: message.SequenceNumber}
	locked, err := receiver.PeekMessages(b.ctx, 5, from)
	must(err)
	equal(1, len(locked), "locked messages")
	b.complete(receiver, message)
	left, err := receiver.PeekMessages(b.ctx, 5, from)
	must(err)
	equal(0, len(left), "messages that are left")
	return "peeked until it was settled"
}

// One of two is settled; what is left comes back, at the latest when its lock ends.
func (b *bus) closeWithUnsettled() string {
	b.send(&azservicebus.Message{Body: []byte("one")}, &azservicebus.Message{Body: []byte("two")})
	leaving := b.receiver(nil)
	messages := b.receive(leaving, 2)
	b.complete(leaving, messages[0])
	must(leaving.Close(b.ctx))
	receiver := b.receiver(nil)
	back := b.receive(receiver, 1)[0]
	equal("two", string(back.Body), "body")
	equal(*messages[1].SequenceNumber, *back.SequenceNumber, "sequence number")
	b.complete(receiver, back)
	return fmt.Sprintf("delivery count %d", back.DeliveryCount)
}

func (b *bus) settleAfterClose() string {
	b.send(&azservicebus.Message{Body: []byte("mine")})
	leaving := b.receiver(nil)
	message := b.receive(leaving, 1)[0]
	must(leaving.Close(b.ctx))
	receiver := b.receiver(nil)
	// Only the lock token is kept: the client then settles through the management link.
	b.complete(receiver, &azservicebus.ReceivedMessage{LockToken: message.LockToken})
	time.Sleep(lock)
	b.expectSilence(receiver)
	return ""
}

// What arrives while nobody receives is released by the client, and counts no delivery.
func (b *bus) releaseUnread() string {
	receiver := b.receiver(nil)
	ctx, cancel := context.WithTimeout(b.ctx, silence)
	_, err := receiver.ReceiveMessages(ctx, 5, nil)
	cancel()
	check(errors.Is(err, context.DeadlineExceeded), fmt.Sprintf("nothing there: %v", err))
	b.send(&azservicebus.Message{Body: []byte("unread")})
	time.Sleep(silence)
	other := b.receiver(nil)
	message := b.receive(other, 1)[0]
	equal(uint32(1), message.DeliveryCount, "delivery count")
	b.complete(other, message)
	return ""
}

func (b *bus) renewLock() string {
	b.send(&azservicebus.Message{Body: []byte("long work")})
	receiver := b.receiver(nil)
	message := b.receive(receiver, 1)[0]
	until := *message.LockedUntil
	time.Sleep(lock * 6 / 10)
	must(receiver.RenewMessageLock(b.ctx, message, nil))
	gained := message.LockedUntil.Sub(until)
	check(gained >= lock/2, fmt.Sprintf("renewed by %s", gained))
	time.Sleep(lock * 7 / 10)
	b.complete(receiver, message)
	b.expectSilence(receiver)
	return ""
}

func (b *bus) lockLost() string {
	b.send(&azservicebus.Message{Body: []byte("too slow")})
	receiver := b.receiver(nil)
	message := b.receive(receiver, 1)[0]
	time.Sleep(lock + 500*time.Millisecond)
	detail := expectError(azservicebus.CodeLockLost, receiver.CompleteMessage(b.ctx, message, nil))
	expectError(azservicebus.CodeLockLost, receiver.RenewMessageLock(b.ctx, message, nil))
	again := b.receive(receiver, 1)[0]
	equal(uint32(2), again.DeliveryCount, "delivery count")
	b.complete(receiver, again)
	return detail
}

func (b *bus) schedule() string {
	due := time.Now().Add(3 * time.Second).Truncate(time.Millisecond)
	sender := b.sender(b.client, b.queue)
	numbers, err := sender.ScheduleMessages(
		b.ctx, []*azservicebus.Message{{Body: []byte("later")}}, due, nil)
	must(err)
	receiver := b.receiver(nil)
	message := b.receive(receiver, 1)[0]
	check(!time.Now().Before(due), "early")
	check(*message.SequenceNumber > numbers[0], "a new number at activation")
	check(message.ScheduledEnqueueTime.Equal(due), "scheduled enqueue time")
	check(!message.EnqueuedTime.Before(due), "enqueued when due")
	b.complete(receiver, message)
	return ""
}

func (b *bus) scheduleCancel() string {
	due := time.Now().Add(2 * time.Second)
	sender := b.sender(b.client, b.queue)
	numbers, err := sender.ScheduleMessages(
		b.ctx, []*azservicebus.Message{{Body: []byte("never")}, {Body: []byte("ever")}}, due, nil)
	must(err)
	equal(2, len(numbers), "numbers")
	must(sender.CancelScheduledMessages(b.ctx, numbers, nil))
	time.Sleep(2 * time.Second)
	b.expectSilence(b.receiver(nil))
	return ""
}

func (b *bus) cancelUnknown() string {
	sender := b.sender(b.client, b.queue)
	err := sender.CancelScheduledMessages(b.ctx, []int64{987654321}, nil)
	check(err != nil, "no error for an unknown number")
	return err.Error()
}

func (b *bus) scheduledByProperty() string {
	due := time.Now().Add(2 * time.Second).Truncate(time.Millisecond)
	b.send(&azservicebus.Message{Body: []byte("p"), ScheduledEnqueueTime: &due})
	receiver := b.receiver(nil)
	message := b.receive(receiver, 1)[0]
	check(!time.Now().Before(due), "early")
	check(!message.EnqueuedTime.Before(due), "enqueued when due")
	b.complete(receiver, message)
	return ""
}

func (b *bus) receiveAndDelete() string {
	b.send(&azservicebus.Message{Body: []byte("1")}, &azservicebus.Message{Body: []byte("2")})
	receiver := b.receiver(&azservicebus.ReceiverOptions{
		ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete,
	})
	messages := b.receive(receiver, 2)
	equal("1", string(messages[0].Body), "first")
	equal("2", string(messages[1].Body), "second")
	must(receiver.Close(b.ctx))
	time.Sleep(lock)
	b.expectSilence(b.receiver(nil))
	return ""
}

func (b *bus) timeToLive() string {
	short, long := time.Second, time.Hour
	b.send(
		&azservicebus.Message{Body: []byte("short"), TimeToLive: &short},
		&azservicebus.Message{Body: []byte("long"), TimeToLive: &long},
	)
	time.Sleep(1500 * time.Millisecond)
	receiver := b.receiver(nil)
	message := b.receive(receiver, 1)[0]
	equal("long", string(message.Body), "body")
	equal(time.Hour, *message.TimeToLive, "time to live")
	equal(time.Hour, message.ExpiresAt.Sub(*message.EnqueuedTime), "expires at")
	b.complete(receiver, message)
	b.expectSilence(receiver)
	return ""
}

func (b *bus) types() string {
	properties := map[string]any{
		"string": "ä☃", "bool": true, "int8": int8(-7), "int16": int16(-700), "int32": int32(-70000),
		"int64": int64(-7000000000), "uint8": uint8(7), "uint16": uint16(700),
		"uint32": uint32(70000), "uint64": uint64(7000000000), "float32": float32(1.5),
		"float64": 2.25, "time": time.UnixMilli(1795226000123).UTC(), "nil": nil,
	}
	text := func(value string) *string { return &value }
	b.send(&azservicebus.Message{
		Body: []byte{0, 255, 9}, MessageID: text("id-1"), CorrelationID: text("corr"),
		ContentType: text("text/plain"), Subject: text("sub"), To: text("to"),
		ReplyTo: text("reply"), PartitionKey: text("k"), ApplicationProperties: properties,
	})
	sender := b.sender(b.client, b.queue)
	for _, body := range []azservicebus.AMQPAnnotatedMessageBody{
		{Value: int64(42)},
		{Sequence: [][]any{{int32(1), "two", 3.0}}},
		{Data: [][]byte{{1}, {2, 3}}},
	} {
		must(sender.SendAMQPAnnotatedMessage(
			b.ctx, &azservicebus.AMQPAnnotatedMessage{Body: body}, nil))
	}
	receiver := b.receiver(nil)
	messages := b.receive(receiver, 4)
	for _, message := range messages {
		b.complete(receiver, message)
	}
	first := messages[0]
	equal([]byte{0, 255, 9}, first.Body, "data body")
	equal(len(properties), len(first.ApplicationProperties), "number of properties")
	for name, expected := range properties {
		found := first.ApplicationProperties[name]
		if instant, ok := expected.(time.Time); ok {
			check(instant.Equal(found.(time.Time)), name)
		} else {
			equal(expected, found, name)
		}
	}
	equal("id-1", first.MessageID, "message id")
	equal("corr", *first.CorrelationID, "correlation id")
	equal("text/plain", *first.ContentType, "content type")
	equal("sub", *first.Subject, "subject")
	equal("to", *first.To, "to")
	equal("reply", *first.ReplyTo, "reply to")
	equal("k", *first.PartitionKey, "partition key")
	equal(any(int64(42)), messages[1].RawAMQPMessage.Body.Value, "value body")
	equal([][]any{{int32(1), "two", 3.0}}, messages[2].RawAMQPMessage.Body.Sequence, "sequence")
	equal([][]byte{{1}, {2, 3}}, messages[3].RawAMQPMessage.Body.Data, "two data sections")
	return ""
}

func (b *bus) large() string {
	body := bytes.Repeat([]byte{7}, 200*1024)
	b.send(&azservicebus.Message{Body: body})
	receiver := b.receiver(nil)
	message := b.receive(receiver, 1)[0]
	check(bytes.Equal(body, message.Body), "body")
	b.complete(receiver, message)
	return ""
}

func (b *bus) tooLarge() string {
	sender := b.sender(b.client, b.queue)
	message := &azservicebus.Message{Body: make([]byte, 300*1024)}
	err := sender.SendMessage(b.ctx, message, nil)
	check(errors.Is(err, azservicebus.ErrMessageTooLarge), fmt.Sprintf("too large: %v", err))
	return err.Error()
}

func (b *bus) wrongKey() string {
	text := regexp.MustCompile("SharedAccessKey=[^;]*").
		ReplaceAllString(b.text, "SharedAccessKey=wrong")
	client, err := azservicebus.NewClientFromConnectionString(text, nil) // it would retry
	must(err)
	defer client.Close(b.ctx)
	sender := b.sender(client, b.queue)
	err = sender.SendMessage(b.ctx, &azservicebus.Message{Body: []byte("x")}, nil)
	return expectError(azservicebus.CodeUnauthorizedAccess, err)
}

func (b *bus) unknownEntity() string {
	sender := b.sender(b.client, "no-such-queue")
	err := sender.SendMessage(b.ctx, &azservicebus.Message{Body: []byte("x")}, nil)
	return expectError(azservicebus.CodeNotFound, err)
}

func options() *azservicebus.ClientOptions {
	return &azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}}
}

func (b *bus) sender(client *azservicebus.Client, queue string) *azservicebus.Sender {
	sender, err := client.NewSender(queue, nil)
	must(err)
	return sender
}

func (b *bus) send(messages ...*azservicebus.Message) {
	sender := b.sender(b.client, b.queue)
	for _, message := range messages {
		must(sender.SendMessage(b.ctx, message, nil))
	}
	must(sender.Close(b.ctx))
}

func (b *bus) receiver(options *azservicebus.ReceiverOptions) *azservicebus.Receiver {
	receiver, err := b.client.NewReceiverForQueue(b.queue, options)
	must(err)
	return receiver
}

func (b *bus) deadLetters() *azservicebus.Receiver {
	return b.receiver(&azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
}

func (b *bus) receive(receiver *azservicebus.Receiver, count int) []*azservicebus.ReceivedMessage {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	var messages []*azservicebus.ReceivedMessage
	for len(messages) < count {
		more, err := receiver.ReceiveMessages(ctx, count-len(messages), nil)
		must(err)
		messages = append(messages, more...)
	}
	return messages
}

func (b *bus) complete(receiver *azservicebus.Receiver, message *azservicebus.ReceivedMessage) {
	must(receiver.CompleteMessage(b.ctx, message, nil))
}

func (b *bus) expectSilence(receiver *azservicebus.Receiver) {
	ctx, cancel := context.WithTimeout(b.ctx, silence)
	defer cancel()
	messages, err := receiver.ReceiveMessages(ctx, 1, nil)
	equal(0, len(messages), "messages that should not be there")
	check(errors.Is(err, context.DeadlineExceeded), fmt.Sprintf("silence: %v", err))
}

// Leaves the queue empty for the next scenario, whatever this one left behind.
func (b *bus) empty() {
	time.Sleep(lock)
	for _, part := range []azservicebus.SubQueue{0, azservicebus.SubQueueDeadLetter} {
		receiver := b.receiver(&azservicebus.ReceiverOptions{
			ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete, SubQueue: part,
		})
		for {
			ctx, cancel := context.WithTimeout(b.ctx, silence)
			messages, _ := receiver.ReceiveMessages(ctx, 100, nil)
			cancel()
			if len(messages) == 0 {
				break
			}
		}
	}
}

func expectError(code azservicebus.Code, err error) string {
	var found *azservicebus.Error
	if !errors.As(err, &found) || found.Code != code {
		panic(fmt.Sprintf("error %v, not %s", err, code))
	}
	return err.Error()
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func check(holds bool, what string) {
	if !holds {
		panic(what)
	}
}

func equal[T any](expected, found T, what string) {
	check(reflect.DeepEqual(expected, found), fmt.Sprintf("%s: %v, not %v", what, found, expected))
}

func run(text, queue string, do func(*bus) string) (ok bool, detail string) {
	defer func() {
		if caught := recover(); caught != nil {
			ok, detail = false, fmt.Sprintf("%v\n%s", caught, debug.Stack())
		}
	}()
	client, err := azservicebus.NewClientFromConnectionString(text, options())
	must(err)
	// A settlement by a session that is lost is tried anew by this client for up to a minute.
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	defer client.Close(context.Background())
	return true, do(&bus{ctx: ctx, text: text, queue: queue, client: client})
}

func main() {
	text, queue, wanted := os.Args[1], os.Args[2], os.Args[3:]
	share, shares := 0, 1
	fmt.Sscanf(os.Getenv("SHARE"), "%d/%d", &share, &shares)
	for place, scenario := range scenarios {
		if place%shares != share || len(wanted) > 0 && !slices.Contains(wanted, scenario.name) {
			continue
		}
		started := time.Now()
		ok, detail := run(text, queue, scenario.run)
		line, err := json.Marshal(map[string]any{
			"scenario": scenario.name, "ok": ok, "detail": detail,
			"seconds": time.Since(started).Seconds(),
		})
		must(err)
		fmt.Println(string(line))
		if !ok {
			run(text, queue, func(b *bus) string { b.empty(); return "" })
		}
	}
}
