// Logs in with azidentity and works with the unmodified azservicebus.
//
//	SSL_CERT_FILE=ca.pem tokens HOST:PORT QUEUE [load]
//
// Prints one JSON object a scenario, {"scenario", "ok", "detail"}. As `load` it sends a message and
// completes it, again and again on the same two links, and prints {"round"} for each or {"error"}
// and begins anew; ends with its input. AUTHORITY, TENANT, APPLICATION and SECRET are the
// credential; without them it is the environment's.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

const (
	patience = time.Minute
	pause    = 200 * time.Millisecond
)

var (
	host, queue = os.Args[1], os.Args[2]
	credential  azcore.TokenCredential
)

var scenarios = []struct {
	name string
	run  func(context.Context) error
}{
	{"messages", messages},
	{"sessions", sessions},
	{"administration", administration},
}

func client() (*azservicebus.Client, error) {
	return azservicebus.NewClient(host, credential, &azservicebus.ClientOptions{
		TLSConfig:    &tls.Config{ServerName: "localhost"},
		RetryOptions: azservicebus.RetryOptions{MaxRetries: -1},
	})
}

// One returns the one message that a receiver gets.
func one(ctx context.Context, receiver interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
}) (*azservicebus.ReceivedMessage, error) {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	received, err := receiver.ReceiveMessages(limited, 1, nil)
	if err != nil {
		return nil, err
	}
	return received[0], nil
}

func send(ctx context.Context, bus *azservicebus.Client, place string, message *azservicebus.Message) error {
	sender, err := bus.NewSender(place, nil)
	if err != nil {
		return err
	}
	return sender.SendMessage(ctx, message, nil)
}

func messages(ctx context.Context) error {
	bus, err := client()
	if err != nil {
		return err
	}
	defer bus.Close(ctx)
	if err := send(ctx, bus, queue, &azservicebus.Message{Body: []byte("hello")}); err != nil {
		return err
	}
	receiver, err := bus.NewReceiverForQueue(queue, nil)
	if err != nil {
		return err
	}
	message, err := one(ctx, receiver)
	if err != nil {
		return err
	}
	if err := receiver.RenewMessageLock(ctx, message, nil); err != nil {
		return err
	}
	return receiver.CompleteMessage(ctx, message, nil)
}

func sessions(ctx context.Context) error {
	bus, err := client()
	if err != nil {
		return err
	}
	defer bus.Close(ctx)
	place := queue + "-sessions"
	hello := &azservicebus.Message{Body: []byte("hello"), SessionID: to.Ptr("one")}
	if err := send(ctx, bus, place, hello); err != nil {
		return err
	}
	receiver, err := bus.AcceptSessionForQueue(ctx, place, "one", nil)
	if err != nil {
		return err
	}
	message, err := one(ctx, receiver)
	if err != nil {
		return err
	}
	if err := receiver.SetSessionState(ctx, []byte("seen"), nil); err != nil {
		return err
	}
	return receiver.CompleteMessage(ctx, message, nil)
}

func administration(ctx context.Context) error {
	bus, err := admin.NewClient(host, credential, nil)
	if err != nil {
		return err
	}
	name := queue + "-made"
	given := &admin.QueueProperties{ForwardTo: to.Ptr(queue)}
	made, err := bus.CreateQueue(ctx, name, &admin.CreateQueueOptions{Properties: given})
	if err != nil {
		return err
	}
	changed := made.QueueProperties
	changed.MaxDeliveryCount = to.Ptr(int32(3))
	if _, err := bus.UpdateQueue(ctx, name, changed, nil); err != nil {
		return err
	}
	page, err := bus.NewListQueuesPager(nil).NextPage(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(page.Queues, func(each admin.QueueItem) bool { return each.QueueName == name }) {
		return fmt.Errorf("%s is not listed", name)
	}
	_, err = bus.DeleteQueue(ctx, name, nil)
	return err
}

func say(fact map[string]any) {
	line, _ := json.Marshal(fact)
	fmt.Println(string(line))
}

// Rounds sends and completes until the context ends.
func rounds(ctx context.Context, count *int) error {
	bus, err := client()
	if err != nil {
		return err
	}
	defer bus.Close(context.Background())
	sender, err := bus.NewSender(queue, nil)
	if err != nil {
		return err
	}
	receiver, err := bus.NewReceiverForQueue(queue, nil)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		body := []byte(fmt.Sprint(*count))
		if err := sender.SendMessage(ctx, &azservicebus.Message{Body: body}, nil); err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, patience)
		received, err := receiver.ReceiveMessages(limited, 1, nil)
		cancel()
		if err != nil {
			return err
		}
		for _, message := range received {
			if err := receiver.CompleteMessage(ctx, message, nil); err != nil {
				return err
			}
		}
		say(map[string]any{"round": *count})
		*count++
		time.Sleep(pause)
	}
	return nil
}

func logIn() (azcore.TokenCredential, error) {
	host := os.Getenv("AUTHORITY")
	if host == "" {
		return azidentity.NewDefaultAzureCredential(nil)
	}
	authority := cloud.Configuration{ActiveDirectoryAuthorityHost: host}
	return azidentity.NewClientSecretCredential(
		os.Getenv("TENANT"), os.Getenv("APPLICATION"), os.Getenv("SECRET"),
		&azidentity.ClientSecretCredentialOptions{
			ClientOptions:            policy.ClientOptions{Cloud: authority},
			DisableInstanceDiscovery: true,
		})
}

func main() {
	var err error
	if credential, err = logIn(); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if len(os.Args) > 3 && os.Args[3] == "load" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
		for count := 0; ctx.Err() == nil; {
			if err := rounds(ctx, &count); err != nil && ctx.Err() == nil {
				say(map[string]any{"error": strings.ReplaceAll(err.Error(), "\n", " ")})
				time.Sleep(time.Second)
			}
		}
		return
	}
	for _, each := range scenarios {
		err := each.run(ctx)
		say(map[string]any{"scenario": each.name, "ok": err == nil, "detail": fmt.Sprint(err)})
	}
}
