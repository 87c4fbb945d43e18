package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/events"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/netguard"
	"github.com/cairnstate/cairn/internal/secret"
)

func jsonInto(data []byte, into any) error { return json.Unmarshal(data, into) }

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func TestRequest(t *testing.T) {
	w := newWorld(t, "sqlite")
	var header http.Header
	var body []byte
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		header = req.Header
		body, _ = io.ReadAll(req.Body)
		rw.Write(bytes.Repeat([]byte("x"), 1<<20))
	}))
	defer s.Close()
	hook, key, err := w.endpoints.Create(t.Context(), meta.Change{Org: w.org}, Spec{URL: s.URL, Enabled: true})
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(hook.Secret, []byte(key)) || len(key) < 40 {
		t.Errorf("secret %q is stored as %q", key, hook.Secret)
	}
	before := time.Now().Truncate(time.Second)
	out, err := w.endpoints.Ping(t.Context(), hook)
	if err != nil || !out.Delivered || out.Status != 200 || out.Error != "" {
		t.Fatalf("ping %+v, %v", out, err)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "User-Agent": "Pierre-Webhook/1.0", "X-Pierre-Event": "ping", "X-Cairn-Event-Id": "",
	} {
		if got := header.Get(name); got != want {
			t.Errorf("header %s is %q, want %q", name, got, want)
		}
	}
	if want := `{"type":"ping","webhook_id":"` + PublicID(hook.ID) + `"}`; string(body) != want {
		t.Errorf("body %s, want %s", body, want)
	}
	signed := false
	for at := before; !at.After(time.Now()); at = at.Add(time.Second) {
		signed = signed || header.Get("X-Pierre-Signature") == Sign([]byte(key), body, at)
	}
	if !signed {
		t.Errorf("signature %q", header.Get("X-Pierre-Signature"))
	}

	// Sealed for another endpoint, a secret does not open.
	moved := hook
	moved.ID++
	if out, err := w.endpoints.Ping(t.Context(), moved); err != nil || out.Delivered || out.Status != 0 || !strings.Contains(out.Error, "secret") {
		t.Errorf("moved secret: %+v, %v", out, err)
	}
	if _, err := sealSecret(nil, 1, "0123456789"); !errors.Is(err, secret.ErrNoKey) {
		t.Errorf("a secret is kept without a key: %v", err)
	}
	plain := append([]byte{plainSecret}, "0123456789"...)
	if got, err := openSecret(nil, meta.Webhook{ID: 1, Secret: plain}); err != nil || string(got) != "0123456789" {
		t.Errorf("secret without a key: %q, %v", got, err)
	}
	if got, err := openSecret(w.endpoints.Secrets, meta.Webhook{ID: 1, Secret: plain}); err != nil || string(got) != "0123456789" {
		t.Errorf("secret from before there was a key: %q, %v", got, err)
	}
}

func TestAttemptsThatFail(t *testing.T) {
	w := newWorld(t, "sqlite")
	reached := false
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer inside.Close()
	redirect := httptest.NewServer(http.RedirectHandler(inside.URL, http.StatusTemporaryRedirect))
	defer redirect.Close()
	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
	defer untrusted.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(inside.URL, "http://"), ":")
	public := NewSender(w.endpoints.Secrets, new(netguard.Guard), nil)
	sealed := w.endpoint(Spec{URL: inside.URL})
	for name, row := range map[string]struct {
		sender *Sender
		url    string
		status int
		says   string
	}{
		"redirect":          {w.endpoints.Sender, redirect.URL, 307, "redirects are not followed"},
		"untrusted":         {w.endpoints.Sender, untrusted.URL, 0, "certificate is not trusted"},
		"down":              {w.endpoints.Sender, gone.URL, 0, "the connection failed"},
		"private address":   {public, inside.URL, 0, "not on the public network"},
		"resolves to local": {public, "http://localhost:" + port, 0, "not on the public network"},
	} {
		hook := sealed
		hook.URL = row.url
		out := row.sender.Send(t.Context(), hook, meta.Event{Type: "push", Body: []byte("{}")})
		if out.Delivered || out.Status != row.status || !strings.Contains(out.Error, row.says) || strings.Contains(out.Error, port) {
			t.Errorf("%s: %+v", name, out)
		}
	}
	if reached {
		t.Error("a refused address was reached")
	}
}

func TestEndpointsThatAreRefused(t *testing.T) {
	w := newWorld(t, "sqlite")
	for name, spec := range map[string]Spec{
		"no URL":         {},
		"other scheme":   {URL: "ftp://hooks.example.com/"},
		"no host":        {URL: "https:///x"},
		"relative":       {URL: "/x"},
		"plain http":     {URL: "http://hooks.example.com/"},
		"user":           {URL: "https://u:p@hooks.example.com/"},
		"fragment":       {URL: "https://hooks.example.com/#x"},
		"loopback":       {URL: "https://127.0.0.2/"},
		"loopback 6":     {URL: "https://[::1]/"},
		"mapped":         {URL: "https://[::ffff:10.0.0.1]/"},
		"metadata":       {URL: "https://169.254.169.254/latest"},
		"private":        {URL: "https://192.168.1.1/"},
		"number":         {URL: "https://2130706433/"},
		"localhost":      {URL: "https://LocalHost./"},
		"long":           {URL: "https://hooks.example.com/" + strings.Repeat("x", maxURL)},
		"unknown event":  {URL: "https://hooks.example.com/", Events: []string{"pull"}},
		"many events":    {URL: "https://hooks.example.com/", Events: make([]string, maxEvents+1)},
		"short secret":   {URL: "https://hooks.example.com/", Secret: "1234567"},
		"long secret":    {URL: "https://hooks.example.com/", Secret: strings.Repeat("x", maxSecret+1)},
		"spaced secret":  {URL: "https://hooks.example.com/", Secret: "12345678 x"},
		"control secret": {URL: "https://hooks.example.com/", Secret: "12345678\n"},
	} {
		if _, _, err := w.endpoints.Create(t.Context(), meta.Change{Org: w.org}, spec); !isA[*InvalidError](err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list, err := w.feed.Webhooks(t.Context(), meta.WebhookQuery{Org: w.org, Limit: 100}); err != nil || len(list) != 0 {
		t.Errorf("refused endpoints are there: %+v, %v", list, err)
	}
	for range MaxPerOrg {
		w.endpoint(Spec{URL: "https://hooks.example.com/"})
	}
	if _, _, err := w.endpoints.Create(t.Context(), meta.Change{Org: w.org}, Spec{URL: "https://hooks.example.com/"}); !isA[*InvalidError](err) {
		t.Errorf("one too many: %v", err)
	}
	// What the org has as a whole takes no room from a repository.
	one := Spec{URL: "https://hooks.example.com/", Repo: w.repo, Enabled: true}
	if _, _, err := w.endpoints.Create(t.Context(), meta.Change{Org: w.org}, one); err != nil {
		t.Errorf("one of a repository: %v", err)
	}
	list, err := w.feed.Webhooks(t.Context(), meta.WebhookQuery{Org: w.org, Limit: 100})
	if err != nil || len(list) != MaxPerOrg+1 {
		t.Fatalf("%d endpoints, %v", len(list), err)
	}
	if err := w.endpoints.Delete(t.Context(), meta.Change{Org: w.org + 1}, list[0].ID); !isA[*NotFoundError](err) {
		t.Errorf("another org deletes: %v", err)
	}
	if err := w.endpoints.Delete(t.Context(), meta.Change{Org: w.org}, list[0].ID); err != nil {
		t.Error(err)
	}
	// One whose URL is refused meanwhile can still be disabled.
	bad := list[1]
	bad.URL, bad.Secret = "https://127.0.0.2/", nil
	w.apply(meta.Change{UpdateWebhook: &bad})
	spec := SpecOf(bad)
	spec.Enabled = false
	if hook, err := w.endpoints.Update(t.Context(), meta.Change{Org: w.org}, bad.ID, spec); err != nil || hook.Enabled {
		t.Errorf("disabling: %+v, %v", hook, err)
	}
	spec.URL = "https://127.0.0.3/"
	if _, err := w.endpoints.Update(t.Context(), meta.Change{Org: w.org}, bad.ID, spec); !isA[*InvalidError](err) {
		t.Errorf("update to a refused URL: %v", err)
	}
}

func FuzzParseID(f *testing.F) {
	for _, text := range []string{"wh_0000000000000007", "wh_7fffffffffffffff", "wh_ffffffffffffffff", "wh_7", "wh_000000000000000G", "repo_0000000000000007", "", "wh_+000000000000007"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if id, ok := ParseID(text); ok && PublicID(id) != text {
			t.Errorf("%q became %d", text, id)
		}
	})
}

// FuzzRef takes any body for that of a push.
func FuzzRef(f *testing.F) {
	f.Add(events.Push{Ref: "refs/heads/main"}.Event().Body)
	f.Add([]byte(`{"ref":1}`))
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, body []byte) {
		ref := events.Ref(meta.Event{Type: events.TypePush, Body: body})
		if ref != "" && !json.Valid(body) {
			t.Errorf("ref %q of no JSON", ref)
		}
	})
}

// TestReseal: after the first key changed, all secrets are encrypted with it, those
// too that were stored without any.
func TestReseal(t *testing.T) {
	w := newWorld(t, "sqlite")
	older, newer := secret.Generate(), secret.Generate()
	ring := func(texts ...[]byte) *secret.Keyring {
		r, err := secret.Parse(bytes.Join(texts, nil))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	w.endpoints.Secrets = ring(older)
	sealed := w.endpoint(Spec{URL: "https://hooks.example.com/", Secret: "older-secret"})
	plain := meta.Webhook{ID: sealed.ID + 1, URL: "https://hooks.example.com/", Secret: append([]byte{plainSecret}, "plain-secret"...)}
	lost := meta.Webhook{ID: sealed.ID + 2, URL: "https://hooks.example.com/", Secret: []byte{1, 2, 3}}
	w.apply(meta.Change{CreateWebhook: &plain})
	w.apply(meta.Change{CreateWebhook: &lost})
	w.endpoints.Secrets = ring(newer, older)
	for _, want := range []int{2, 0} {
		if made, left, err := w.endpoints.Reseal(t.Context()); made != want || left != 1 || err != nil {
			t.Errorf("%d made, %d left, %v", made, left, err)
		}
	}
	for id, want := range map[meta.WebhookID]string{sealed.ID: "older-secret", plain.ID: "plain-secret"} {
		hook, err := w.endpoints.Get(t.Context(), w.org, id)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := openSecret(ring(newer), hook); err != nil || string(got) != want {
			t.Errorf("%q, %v", got, err)
		}
	}
}
