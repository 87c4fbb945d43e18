package cairn

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/sdk/go/option"
)

// setEnv clears every variable that NewClient reads and sets those given.
func setEnv(t *testing.T, env map[string]string) {
	t.Helper()
	for _, name := range []string{
		"CAIRN_URL", "CAIRN_ORG", "CAIRN_PRIVATE_KEY", "CAIRN_TOKEN", "CAIRN_TOKEN_FILE", "PIERRE_ORG", "PIERRE_PRIVATE_KEY",
	} {
		t.Setenv(name, env[name])
	}
}

func newKey(t *testing.T) string {
	t.Helper()
	text, err := auth.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// verify checks a token with the public half of a key.
func verify(t *testing.T, raw, org, key string) *auth.Principal {
	t.Helper()
	public, err := auth.ParsePublicKey("", []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	v, err := auth.NewVerifier(auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := v.Verify(raw, auth.OrgKeys{Name: org, Keys: []auth.Key{public}, MaxTTL: time.Hour}, time.Now())
	if err != nil {
		t.Fatalf("verify: %v", err)
	}
	return p
}

func TestNewClientFromTheEnvironment(t *testing.T) {
	key, other := newKey(t), newKey(t)
	path := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(path, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		env  map[string]string
		opts []option.ClientOption
		org  string
		url  string
	}{
		{"text", map[string]string{"CAIRN_ORG": "acme", "CAIRN_PRIVATE_KEY": key}, nil, "acme", "http://127.0.0.1:8080"},
		{"escaped text", map[string]string{"CAIRN_ORG": "acme", "CAIRN_PRIVATE_KEY": strings.ReplaceAll(key, "\n", `\n`)}, nil, "acme", "http://127.0.0.1:8080"},
		{"path", map[string]string{"CAIRN_ORG": "acme", "CAIRN_PRIVATE_KEY": path}, nil, "acme", "http://127.0.0.1:8080"},
		{"PIERRE", map[string]string{"PIERRE_ORG": "acme", "PIERRE_PRIVATE_KEY": key}, nil, "acme", "http://127.0.0.1:8080"},
		{"CAIRN wins over PIERRE", map[string]string{"PIERRE_ORG": "p", "PIERRE_PRIVATE_KEY": other, "CAIRN_ORG": "acme", "CAIRN_PRIVATE_KEY": key}, nil, "acme", "http://127.0.0.1:8080"},
		{"each variable on its own", map[string]string{"PIERRE_ORG": "p", "PIERRE_PRIVATE_KEY": key, "CAIRN_ORG": "acme"}, nil, "acme", "http://127.0.0.1:8080"},
		{"URL", map[string]string{"CAIRN_URL": "https://git.example:9000/cairn/", "CAIRN_ORG": "acme", "CAIRN_PRIVATE_KEY": key}, nil, "acme", "https://git.example:9000/cairn"},
		{"URL with a slash", map[string]string{"CAIRN_URL": "https://git.example/", "CAIRN_ORG": "acme", "CAIRN_PRIVATE_KEY": key}, nil, "acme", "https://git.example"},
		{
			"options win", map[string]string{"CAIRN_URL": "http://a", "CAIRN_ORG": "x", "CAIRN_PRIVATE_KEY": other, "CAIRN_TOKEN": "a.b.c"},
			[]option.ClientOption{option.WithBaseURL("http://b"), option.WithOrg("acme"), option.WithPrivateKey(key)}, "acme", "http://b",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			setEnv(t, tt.env)
			c, err := NewClient(tt.opts...)
			if err != nil {
				t.Fatal(err)
			}
			if got := c.BaseURL().String(); got != tt.url {
				t.Errorf("base URL is %q, want %q", got, tt.url)
			}
			raw, err := c.Token(context.Background(), TokenParams{RepoName: "r"})
			if err != nil {
				t.Fatal(err)
			}
			if p := verify(t, raw, tt.org, key); p.Subject != "cairn-sdk-go" {
				t.Errorf("subject is %q", p.Subject)
			}
		})
	}
}

func TestNewClientRefuses(t *testing.T) {
	key := newKey(t)
	with := func(pairs ...string) map[string]string {
		env := map[string]string{"CAIRN_ORG": "acme", "CAIRN_PRIVATE_KEY": key}
		for i := 0; i < len(pairs); i += 2 {
			env[pairs[i]] = pairs[i+1]
		}
		return env
	}
	mangled := strings.ReplaceAll(key, "-----BEGIN", "BEGIN")
	tests := map[string]map[string]string{
		"nothing set":         {},
		"no organisation":     with("CAIRN_ORG", ""),
		"key and token":       with("CAIRN_TOKEN", "a.b.c"),
		"token and file":      {"CAIRN_TOKEN": "a.b.c", "CAIRN_TOKEN_FILE": "/x"},
		"key file is missing": with("CAIRN_PRIVATE_KEY", filepath.Join(t.TempDir(), "none")),
		"key is a directory":  with("CAIRN_PRIVATE_KEY", t.TempDir()),
		"key mangled":         with("CAIRN_PRIVATE_KEY", mangled),
		"key cut off":         with("CAIRN_PRIVATE_KEY", key[:80]),
		"URL without scheme":  with("CAIRN_URL", "localhost:8080"),
		"URL without host":    with("CAIRN_URL", "http://"),
		"URL with a user":     with("CAIRN_URL", "http://t:secret@host"),
		"URL with a query":    with("CAIRN_URL", "http://host?token=secret"),
		"URL broken":          with("CAIRN_URL", "http://t:secret@ho st"),
		"URL of ssh":          with("CAIRN_URL", "ssh://host"),
	}
	for name, env := range tests {
		t.Run(name, func(t *testing.T) {
			setEnv(t, env)
			c, err := NewClient()
			var bad *ConfigError
			if !errors.As(err, &bad) || bad.Setting == "" {
				t.Fatalf("got %v, %v, want a *ConfigError", c, err)
			}
			for _, secret := range []string{"secret", key[40:60]} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("error %q holds a secret", err)
				}
			}
		})
	}
}

func TestToken(t *testing.T) {
	key := newKey(t)
	setEnv(t, map[string]string{"CAIRN_ORG": "acme", "CAIRN_PRIVATE_KEY": key})
	c, err := NewClient(option.WithSubject("agent-7"), option.WithKeyID("k1"))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	raw, err := c.Token(ctx, TokenParams{RepoName: "team/r"})
	if err != nil {
		t.Fatal(err)
	}
	p := verify(t, raw, "acme", key)
	if p.Subject != "agent-7" || p.Repo != "team/r" || len(p.Scopes) != 1 || p.Scopes[0] != auth.GitRead || p.Policies != nil {
		t.Errorf("default token says %+v", p.Claims)
	}
	if got := p.Expires - p.IssuedAt; got != 900 {
		t.Errorf("default token lives %d s, want 900", got)
	}
	for ttl, want := range map[time.Duration]int64{time.Second: 1, time.Hour: 3600, 90*time.Second + 500*time.Millisecond: 90} {
		raw, err := c.Token(ctx, TokenParams{RepoName: "r", TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		if p := verify(t, raw, "acme", key); p.Expires-p.IssuedAt != want {
			t.Errorf("TTL %s lives %d s, want %d", ttl, p.Expires-p.IssuedAt, want)
		}
	}
	for name, bad := range map[string]TokenParams{
		"RepoName":    {},
		"TTL":         {RepoName: "r", TTL: time.Hour + 1},
		"Scopes":      {RepoName: "r", Scopes: []string{""}},
		"RefPolicies": {RepoName: "r", RefPolicies: []option.RefPolicy{{Pattern: "ma*n"}}},
	} {
		var refused *ParamError
		if _, err := c.Token(ctx, bad); !errors.As(err, &refused) || refused.Param != name {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for _, ttl := range []time.Duration{-1, -time.Hour, time.Millisecond} {
		var refused *ParamError
		if _, err := c.Token(ctx, TokenParams{RepoName: "r", TTL: ttl}); !errors.As(err, &refused) || refused.Param != "TTL" {
			t.Errorf("TTL %s: got %v", ttl, err)
		}
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.Token(cancelled, TokenParams{RepoName: "r"}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
}

func TestGivenToken(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "token")
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ask := TokenParams{RepoName: "r", Scopes: []string{"git:write"}, TTL: time.Minute}

	setEnv(t, map[string]string{"CAIRN_TOKEN": "aa.bb.cc", "PIERRE_PRIVATE_KEY": newKey(t), "PIERRE_ORG": "acme"})
	c, err := NewClient()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Token(ctx, ask); err != nil || got != "aa.bb.cc" {
		t.Errorf("CAIRN_TOKEN: got %q, %v", got, err)
	}
	confined := ask
	confined.RefPolicies = []option.RefPolicy{{Pattern: "*", Ops: []string{"no-push"}}}
	if got, err := c.Token(ctx, confined); !errors.Is(err, ErrCannotConfine) {
		t.Errorf("with policies: got %q, %v, want ErrCannotConfine", got, err)
	}

	setEnv(t, map[string]string{"CAIRN_TOKEN_FILE": path})
	if c, err = NewClient(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a.b.c", "d.e.f"} {
		write(want + "\n")
		if got, err := c.Token(ctx, ask); err != nil || got != want {
			t.Errorf("CAIRN_TOKEN_FILE: got %q, %v, want %q", got, err, want)
		}
	}
	for _, content := range []string{"", "hunter2", "a.b", "a.b.c.d", "a.b.c d", "a.b.c\n# x", strings.Repeat("a", 70000)} {
		write(content)
		var bad *ConfigError
		if got, err := c.Token(ctx, ask); !errors.As(err, &bad) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("file with %.20q: got %q, %v, want a *ConfigError", content, got, err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Token(ctx, ask); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("file gone: got %q, %v", got, err)
	}
}
