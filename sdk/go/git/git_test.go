package git_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/auth"
	cairn "github.com/cairnstate/cairn/sdk/go"
	"github.com/cairnstate/cairn/sdk/go/git"
	"github.com/cairnstate/cairn/sdk/go/option"
)

func newClient(t *testing.T, opts ...option.ClientOption) (*cairn.Client, auth.OrgKeys) {
	t.Helper()
	key, err := auth.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	public, err := auth.ParsePublicKey("", key)
	if err != nil {
		t.Fatal(err)
	}
	opts = append([]option.ClientOption{
		option.WithOrg("acme"), option.WithPrivateKey(string(key)), option.WithBaseURL("http://127.0.0.1:8080"),
	}, opts...)
	c, err := cairn.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	return c, auth.OrgKeys{Name: "acme", Keys: []auth.Key{public}}
}

// open takes a URL apart: the URL without its user, and who its token speaks for.
func open(t *testing.T, raw string, org auth.OrgKeys) (string, *auth.Principal) {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	token, _ := u.User.Password()
	if u.User.Username() != "t" || strings.Contains(token, "%") || !strings.Contains(raw, "://t:"+token+"@") {
		t.Errorf("user of %q is not t:<token>, unescaped", raw)
	}
	v, err := auth.NewVerifier(auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := v.Verify(token, org, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	u.User = nil
	return u.String(), p
}

func TestRemoteURLForms(t *testing.T) {
	tests := []struct {
		base, repo string
		kind       git.Kind
		want       string
	}{
		{"http://127.0.0.1:8080", "my-project", git.KindNormal, "http://127.0.0.1:8080/my-project.git"},
		{"http://127.0.0.1:8080", "my-project", git.KindEphemeral, "http://127.0.0.1:8080/my-project+ephemeral.git"},
		{"https://git.example", "my-project", git.KindImport, "https://git.example/my-project+import.git"},
		{"https://git.example/a/b/", "team/project", git.KindNormal, "https://git.example/a/b/team/project.git"},
		{"https://git.example", "team/a b?c#d%e", git.KindEphemeral, "https://git.example/team/a%20b%3Fc%23d%25e+ephemeral.git"},
		{"https://git.example/x%2Fy", "r@1:2", git.KindNormal, "https://git.example/x%2Fy/r@1:2.git"},
		{"https://[::1]:1", "ü", git.KindNormal, "https://[::1]:1/%C3%BC.git"},
	}
	for _, tt := range tests {
		c, org := newClient(t, option.WithBaseURL(tt.base))
		raw, err := git.RemoteURL(context.Background(), c, git.RemoteURLParams{RepoName: tt.repo, Kind: tt.kind})
		if err != nil {
			t.Fatal(err)
		}
		got, p := open(t, raw, org)
		if got != tt.want || p.Repo != tt.repo {
			t.Errorf("URL of %q is %q for %q, want %q", tt.repo, got, p.Repo, tt.want)
		}
	}
}

func TestRemoteURLClaims(t *testing.T) {
	c, org := newClient(t)
	raw, err := git.RemoteURL(context.Background(), c, git.RemoteURLParams{
		RepoName: "r", Scopes: []string{"git:read", "git:write"}, TTL: time.Hour,
		RefPolicies: []option.RefPolicy{{Pattern: "main", Ops: []string{"no-force-push"}}, {Pattern: "agents/*"}, {Pattern: "*", Ops: []string{"no-push"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, p := open(t, raw, org)
	p.Expires -= p.IssuedAt
	p.IssuedAt = 0
	got, err := json.Marshal(p.Claims)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"Org":"acme","Subject":"cairn-sdk-go","Repo":"r","Thread":"","Session":"","Scopes":["git:read","git:write"],` +
		`"Policies":[["refs/heads/main",["no-force-push"]],["refs/heads/agents/*",[]],["*",["no-push"]]],"IssuedAt":0,"Expires":3600}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestRemoteURLRefuses(t *testing.T) {
	c, _ := newClient(t)
	for param, list := range map[string][]git.RemoteURLParams{
		"RepoName": {
			{}, {RepoName: "/a"}, {RepoName: "a/"}, {RepoName: "a//b"}, {RepoName: "../a"}, {RepoName: "a/./b"},
			{RepoName: "a.git"}, {RepoName: "a+ephemeral"}, {RepoName: "a+import"},
		},
		"Kind": {{RepoName: "a", Kind: "normal"}, {RepoName: "a", Kind: "x/../y"}},
		"TTL":  {{RepoName: "a", TTL: -time.Second}, {RepoName: "a", TTL: time.Hour + time.Second}, {RepoName: "a", TTL: time.Microsecond}},
	} {
		for _, params := range list {
			var bad *cairn.ParamError
			if got, err := git.RemoteURL(context.Background(), c, params); !errors.As(err, &bad) || bad.Param != param {
				t.Errorf("%+v: got %q, %v, want a *ParamError of %s", params, got, err, param)
			}
		}
	}
}

func TestRemoteURLWithGivenToken(t *testing.T) {
	c, err := cairn.NewClient(option.WithToken("aa.bb.cc"), option.WithBaseURL("https://h"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := git.RemoteURL(context.Background(), c, git.RemoteURLParams{RepoName: "r", Scopes: []string{"git:write"}})
	if err != nil || got != "https://t:aa.bb.cc@h/r.git" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := git.SessionRemotes(context.Background(), c, git.SessionParams{RepoName: "r", Branch: "s"}); !errors.Is(err, cairn.ErrCannotConfine) || got != (git.Remotes{}) {
		t.Errorf("SessionRemotes = %v, %v, want ErrCannotConfine", got, err)
	}
}

func TestSessionRemotes(t *testing.T) {
	c, org := newClient(t)
	remotes, err := git.SessionRemotes(context.Background(), c, git.SessionParams{RepoName: "team/r", Branch: "sessions/42", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	read, p := open(t, remotes.ReadURL, org)
	if read != "http://127.0.0.1:8080/team/r.git" || !p.Allows(auth.GitRead) || p.Allows(auth.GitWrite) || p.Expires-p.IssuedAt != 60 {
		t.Errorf("read URL is %s for %+v", read, p)
	}
	write, p := open(t, remotes.WriteURL, org)
	if write != "http://127.0.0.1:8080/team/r+ephemeral.git" || !p.Allows(auth.GitWrite) || p.Expires-p.IssuedAt != 60 {
		t.Errorf("write URL is %s for %+v", write, p)
	}
	policies, err := json.Marshal(p.Policies)
	if err != nil {
		t.Fatal(err)
	}
	if want := `[["refs/namespaces/ephemeral/refs/heads/sessions/42",["no-force-push"]],["*",["no-push"]]]`; string(policies) != want {
		t.Errorf("policies are %s, want %s", policies, want)
	}
	for _, branch := range []string{"", "*", "sessions/*", "refs/heads/x", "a b", "a..b", "/a", "a/", "a\n"} {
		var bad *cairn.ParamError
		if got, err := git.SessionRemotes(context.Background(), c, git.SessionParams{RepoName: "r", Branch: branch}); !errors.As(err, &bad) {
			t.Errorf("branch %q: got %v, %v, want a *ParamError", branch, got, err)
		}
	}
}

// TestGitReadsTheURL lets stock git take the credentials out of a URL.
func TestGitReadsTheURL(t *testing.T) {
	c, _ := newClient(t)
	raw, err := git.RemoteURL(context.Background(), c, git.RemoteURLParams{RepoName: "team/a b", Kind: git.KindEphemeral})
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	token, _ := u.User.Password()
	cmd := exec.Command("git", "credential", "fill")
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_TERMINAL_PROMPT=0")
	cmd.Stdin = strings.NewReader("url=" + raw + "\n\n")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git credential fill: %v", err)
	}
	for _, line := range []string{"protocol=http", "host=127.0.0.1:8080", "username=t", "password=" + token} {
		if !strings.Contains("\n"+string(out), "\n"+line+"\n") {
			t.Errorf("git reads %q, want the line %q", out, line)
		}
	}
}
