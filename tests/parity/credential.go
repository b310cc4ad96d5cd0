// Package credential stands where Azure's Go tests get a token of Microsoft Entra: here it is a
// shared access signature for the namespace, made from the tests' own connection string.
package credential

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

const lifetime = time.Hour

// NewOptions is nothing that can be chosen.
type NewOptions struct{}

// Signature signs with the key of a connection string.
type Signature struct{ resource, rule, key string }

// New returns a credential for the namespace of the tests.
func New(*NewOptions) (azcore.TokenCredential, error) {
	fields := map[string]string{}
	for _, field := range strings.Split(os.Getenv("SERVICEBUS_CONNECTION_STRING"), ";") {
		name, value, _ := strings.Cut(field, "=")
		fields[name] = value
	}
	resource := url.QueryEscape(fields["Endpoint"])
	return Signature{resource, fields["SharedAccessKeyName"], fields["SharedAccessKey"]}, nil
}

// GetToken returns a signature that holds for an hour.
func (s Signature) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	expires := time.Now().Add(lifetime).UTC()
	mac := hmac.New(sha256.New, []byte(s.key))
	fmt.Fprintf(mac, "%s\n%d", s.resource, expires.Unix())
	signature := url.QueryEscape(base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	token := fmt.Sprintf("SharedAccessSignature sr=%s&sig=%s&se=%d&skn=%s",
		s.resource, signature, expires.Unix(), s.rule)
	return azcore.AccessToken{Token: token, ExpiresOn: expires}, nil
}
