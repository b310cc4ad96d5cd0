// Package credential stands where Azure's Go tests get a token of Microsoft Entra: here it is one of
// the tests' own issuer, asked for at the same path.
package credential

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// NewOptions is nothing that can be chosen.
type NewOptions struct{}

// Application logs in with an id and a secret.
type Application struct{}

// New returns the credential of the tests.
func New(*NewOptions) (azcore.TokenCredential, error) { return Application{}, nil }

// GetToken returns a token for the scopes that are asked for.
func (Application) GetToken(ctx context.Context, asked policy.TokenRequestOptions) (azcore.AccessToken, error) {
	form := url.Values{
		"grant_type":    {"client_credentials"},
		"client_id":     {os.Getenv("PARITY_APPLICATION")},
		"client_secret": {os.Getenv("PARITY_SECRET")},
		"scope":         asked.Scopes,
	}
	address := fmt.Sprintf("%s/%s/oauth2/v2.0/token", os.Getenv("PARITY_AUTHORITY"), os.Getenv("PARITY_TENANT"))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		return azcore.AccessToken{}, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return azcore.AccessToken{}, err
	}
	defer answer.Body.Close()
	var given struct {
		Token    string `json:"access_token"`
		Lifetime int    `json:"expires_in"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&given); err != nil {
		return azcore.AccessToken{}, err
	}
	if given.Token == "" {
		return azcore.AccessToken{}, fmt.Errorf("%s gave no token: %s", address, answer.Status)
	}
	expires := time.Now().Add(time.Duration(given.Lifetime) * time.Second)
	return azcore.AccessToken{Token: given.Token, ExpiresOn: expires.UTC()}, nil
}
