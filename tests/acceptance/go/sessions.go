// The scenarios of sessions, on the queue QUEUE-sessions.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func (b *bus) inSessions() string { return b.queue + "-sessions" }

func (b *bus) sendTo(session string, bodies ...string) {
	sender := b.sender(b.client, b.inSessions())
	for _, body := range bodies {
		message := &azservicebus.Message{Body: []byte(body), SessionID: &session}
		must(sender.SendMessage(b.ctx, message, nil))
	}
}

func (b *bus) accept(session string) *azservicebus.SessionReceiver {
	receiver, err := b.client.AcceptSessionForQueue(b.ctx, b.inSessions(), session, nil)
	must(err)
	return receiver
}

func (b *bus) receiveSession(
	receiver *azservicebus.SessionReceiver, count int,
) []*azservicebus.ReceivedMessage {
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

func (b *bus) sessionAccept() string {
	b.sendTo("one", "a", "b", "c")
	receiver := b.accept("one")
	equal("one", receiver.SessionID(), "session id")
	left := time.Until(receiver.LockedUntil())
	check(left > lock/2 && left <= lock, fmt.Sprintf("locked for %s", left))
	other, err := azservicebus.NewClientFromConnectionString(b.text, options())
	must(err)
	defer func() { must(other.Close(b.ctx)) }()
	_, err = other.AcceptSessionForQueue(b.ctx, b.inSessions(), "one", nil)
	check(err != nil, "a session is one receiver's")
	first := b.receiveSession(receiver, 1)[0]
	must(receiver.AbandonMessage(b.ctx, first, nil))
	messages := b.receiveSession(receiver, 3)
	for at, body := range []string{"a", "b", "c"} {
		equal(body, string(messages[at].Body), "order")
	}
	equal(uint32(2), messages[0].DeliveryCount, "delivery count")
	must(receiver.CompleteMessage(b.ctx, messages[0], nil))
	must(receiver.Close(b.ctx))
	again := b.accept("one")
	for _, message := range b.receiveSession(again, 2) {
		equal(uint32(1), message.DeliveryCount, "delivery count after a close")
		must(again.CompleteMessage(b.ctx, message, nil))
	}
	must(again.Close(b.ctx))
	return err.Error()
}

func (b *bus) sessionNext() string {
	ctx, cancel := context.WithTimeout(b.ctx, 2*time.Second)
	defer cancel()
	_, err := b.client.AcceptNextSessionForQueue(ctx, b.inSessions(), nil)
	var refused *azservicebus.Error
	isTimeout := errors.As(err, &refused) && refused.Code == azservicebus.CodeTimeout
	check(isTimeout || errors.Is(err, context.DeadlineExceeded), fmt.Sprintf("no timeout: %v", err))
	later := time.AfterFunc(300*time.Millisecond, func() { b.sendTo("next", "x") })
	defer later.Stop()
	receiver, err := b.client.AcceptNextSessionForQueue(b.ctx, b.inSessions(), nil)
	must(err)
	equal("next", receiver.SessionID(), "session id")
	must(receiver.CompleteMessage(b.ctx, b.receiveSession(receiver, 1)[0], nil))
	must(receiver.Close(b.ctx))
	return ""
}

func (b *bus) sessionState() string {
	receiver := b.accept("state")
	state, err := receiver.GetSessionState(b.ctx, nil)
	must(err)
	equal(0, len(state), "state at first")
	must(receiver.SetSessionState(b.ctx, []byte("mine"), nil))
	must(receiver.RenewSessionLock(b.ctx, nil))
	check(time.Until(receiver.LockedUntil()) > lock-2*time.Second, "renewed")
	must(receiver.Close(b.ctx))
	again := b.accept("state")
	state, err = again.GetSessionState(b.ctx, nil)
	must(err)
	equal("mine", string(state), "state")
	must(again.SetSessionState(b.ctx, nil, nil))
	state, err = again.GetSessionState(b.ctx, nil)
	must(err)
	equal(0, len(state), "state in the end")
	must(again.Close(b.ctx))
	return ""
}

func (b *bus) sessionLock() string {
	b.sendTo("lapses", "x")
	receiver := b.accept("lapses")
	message := b.receiveSession(receiver, 1)[0]
	time.Sleep(lock + 500*time.Millisecond)
	detail := expectError(azservicebus.CodeLockLost, receiver.CompleteMessage(b.ctx, message, nil))
	// A renewal would accept the session again: that is how this client recovers.
	must(receiver.Close(b.ctx))
	again := b.accept("lapses")
	message = b.receiveSession(again, 1)[0]
	equal(uint32(2), message.DeliveryCount, "delivery count")
	must(again.CompleteMessage(b.ctx, message, nil))
	must(again.Close(b.ctx))
	return detail
}

func (b *bus) sessionDefer() string {
	b.sendTo("defers", "later")
	receiver := b.accept("defers")
	message := b.receiveSession(receiver, 1)[0]
	must(receiver.DeferMessage(b.ctx, message, nil))
	must(receiver.Close(b.ctx))
	again := b.accept("defers")
	numbers := []int64{*message.SequenceNumber}
	deferred, err := again.ReceiveDeferredMessages(b.ctx, numbers, nil)
	must(err)
	equal("later", string(deferred[0].Body), "body")
	must(again.CompleteMessage(b.ctx, deferred[0], nil))
	must(again.Close(b.ctx))
	return ""
}
