// A client at ordinary work: it settles in every way and prints what it does and sees, a line each.
//
//	accounting KIND CONNECTION_STRING PLACE
//
// KIND is batch or sessions. Ends when its input does. This client shows the delivery count of the
// wire plus one.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const (
	batch     = 20
	inSession = 15
	wait      = 500 * time.Millisecond
	late      = 500 * time.Millisecond
)

var shares = []struct {
	below uint32
	fate  string
}{
	{68, "complete"}, {80, "abandon"}, {85, "throw"}, {90, "dead"}, {95, "defer"}, {97, "lapse"},
	{100, "late"},
}

type message = azservicebus.ReceivedMessage

// What a plain receiver and that of a session have in common.
type receiver interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*message, error)
	ReceiveDeferredMessages(
		context.Context, []int64, *azservicebus.ReceiveDeferredMessagesOptions,
	) ([]*message, error)
	CompleteMessage(context.Context, *message, *azservicebus.CompleteMessageOptions) error
	AbandonMessage(context.Context, *message, *azservicebus.AbandonMessageOptions) error
	DeadLetterMessage(context.Context, *message, *azservicebus.DeadLetterOptions) error
	DeferMessage(context.Context, *message, *azservicebus.DeferMessageOptions) error
	Close(context.Context) error
}

var (
	printing sync.Mutex
	ending   = make(chan struct{})
	ctx      = context.Background()
)

func isEnding() bool {
	select {
	case <-ending:
		return true
	default:
		return false
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func say(what string, m *message, fields map[string]any) {
	session := ""
	if m.SessionID != nil {
		session = *m.SessionID
	}
	line := map[string]any{
		"what": what, "id": m.MessageID, "number": *m.SequenceNumber, "session": session,
		"at": time.Now().UnixMilli(),
	}
	for key, value := range fields {
		line[key] = value
	}
	text, err := json.Marshal(line)
	must(err)
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(string(text))
}

func got(m *message, until *time.Time) {
	fields := map[string]any{"count": int64(m.DeliveryCount) - 1, "until": nil}
	if until != nil {
		fields["until"] = until.UnixMilli()
	}
	say("got", m, fields)
}

func hash(text string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(text))
	return h.Sum32()
}

func fateOf(m *message, isInSession bool) string {
	value := hash(fmt.Sprintf("%s/%d", m.MessageID, int64(m.DeliveryCount)-1))
	if strings.HasPrefix(m.MessageID, "poison") {
		return []string{"abandon", "throw"}[value%2]
	}
	for _, share := range shares {
		if value%100 < share.below {
			if isInSession && share.fate == "lapse" {
				return "complete"
			}
			return share.fate
		}
	}
	panic("the shares end at 100")
}

func settle(r receiver, m *message, how string) bool {
	say("settling", m, map[string]any{"how": how})
	var err error
	switch how {
	case "complete":
		err = r.CompleteMessage(ctx, m, nil)
	case "abandon", "throw":
		err = r.AbandonMessage(ctx, m, nil)
	case "dead":
		err = r.DeadLetterMessage(ctx, m, nil)
	case "defer":
		err = r.DeferMessage(ctx, m, nil)
	}
	if err != nil {
		say("refused", m, map[string]any{"how": how, "error": err.Error()})
		return false
	}
	say("settled", m, map[string]any{"how": how})
	return true
}

func handle(r receiver, m *message, fate string, until func(*message) *time.Time) {
	if fate == "late" {
		time.Sleep(late)
		fate = "complete"
	}
	if fate == "lapse" {
		say("settling", m, map[string]any{"how": fate})
		return
	}
	if settle(r, m, fate) && fate == "defer" && hash(m.MessageID)%2 == 0 {
		again, err := r.ReceiveDeferredMessages(ctx, []int64{*m.SequenceNumber}, nil)
		must(err)
		got(again[0], until(again[0]))
		settle(r, again[0], "complete")
	}
}

func receive(r receiver, count int) []*message {
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	messages, err := r.ReceiveMessages(limited, count, nil)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		panic(err)
	}
	return messages
}

func batches(client *azservicebus.Client, place string) {
	var r *azservicebus.Receiver
	var err error
	topic, subscription, isSubscription := strings.Cut(place, "/subscriptions/")
	if isSubscription {
		r, err = client.NewReceiverForSubscription(topic, subscription, nil)
	} else {
		r, err = client.NewReceiverForQueue(place, nil)
	}
	must(err)
	until := func(m *message) *time.Time { return m.LockedUntil }
	for !isEnding() {
		var done sync.WaitGroup
		for _, m := range receive(r, batch) {
			got(m, m.LockedUntil)
			done.Add(1)
			go func() {
				defer done.Done()
				handle(r, m, fateOf(m, false), until)
			}()
		}
		done.Wait()
	}
	must(r.Close(ctx))
}

func sessions(client *azservicebus.Client, place string) {
	for !isEnding() {
		limited, cancel := context.WithTimeout(ctx, 3*time.Second)
		r, err := client.AcceptNextSessionForQueue(limited, place, nil)
		cancel()
		if err != nil {
			var refused *azservicebus.Error
			isTimeout := errors.As(err, &refused) && refused.Code == azservicebus.CodeTimeout
			if !isTimeout && !errors.Is(err, context.DeadlineExceeded) {
				panic(err)
			}
			continue
		}
		until := func(*message) *time.Time { at := r.LockedUntil(); return &at }
		for range inSession {
			messages := receive(r, 3)
			if len(messages) == 0 {
				break
			}
			for _, m := range messages {
				got(m, until(m))
				handle(r, m, fateOf(m, true), until)
			}
		}
		must(r.Close(ctx))
	}
}

func main() {
	kind, text, place := os.Args[1], os.Args[2], os.Args[3]
	client, err := azservicebus.NewClientFromConnectionString(text, nil)
	must(err)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ending)
	}()
	if kind == "sessions" {
		sessions(client, place)
	} else {
		batches(client, place)
	}
	must(client.Close(ctx))
}
