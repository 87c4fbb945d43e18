package quota_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

func noise(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// usage is what `cairn usage` says of the org.
func usage(t *testing.T, s *harness.Server) (bytes, reserved, packs int64) {
	t.Helper()
	out, err := s.Operate("usage", "--org", harness.Org, "--json")
	var doc struct {
		Usage []struct {
			Bytes    int64 `json:"bytes"`
			Reserved int64 `json:"reserved_bytes"`
			Packs    int64 `json:"packs"`
		} `json:"usage"`
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), &doc)
	}
	if err != nil || len(doc.Usage) != 1 {
		t.Fatalf("usage: %v: %s", err, out)
	}
	u := doc.Usage[0]
	return u.Bytes, u.Reserved, u.Packs
}

// TestReservations pushes more than fits, breaks an upload off, and kills the
// server while one is under way: nothing of them is used or stays reserved.
func TestReservations(t *testing.T) {
	for name, options := range map[string]harness.Options{"embedded": {}, "apart": harness.OnPostgresAndS3(t, harness.Options{})} {
		t.Run(name, func(t *testing.T) { reservations(t, harness.Serve(t, options)) })
	}
}

func reservations(t *testing.T, s *harness.Server) {
	if err := s.CreateRepo("app"); err != nil {
		t.Fatal(err)
	}
	operate := func(args ...string) {
		t.Helper()
		if out, err := s.Operate(args...); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	operate("org", "quota", harness.Org, "--bytes", "4MiB", "--repos", "3")
	g := harness.NewGit(t)
	g.Run("init", "-q", "-b", "main", "app")
	g = g.In("app")
	remote := s.Remote(harness.Grant{Repo: "app", Scopes: []auth.Scope{auth.GitWrite}}, "")
	g.Save("a", noise(1<<20))
	g.Run("push", "-q", remote, "main")
	used, reserved, packs := usage(t, s)
	if used < 1<<20 || reserved != 0 || packs != 1 {
		t.Fatalf("%d bytes used, %d reserved, %d packs", used, reserved, packs)
	}
	same := func(what string) {
		t.Helper()
		for begin := time.Now(); ; time.Sleep(200 * time.Millisecond) {
			u, r, p := usage(t, s)
			if u == used && r == 0 && p == packs {
				return
			}
			if time.Since(begin) > 60*time.Second {
				t.Fatalf("after %s: %d bytes used, %d reserved, %d packs", what, u, r, p)
			}
		}
	}
	g.Save("b", noise(6<<20))
	out, err := g.Try("push", remote, "main")
	if err == nil || !strings.Contains(out, "4194304 bytes") || !strings.Contains(out, "the push was refused: the org may have") {
		t.Fatalf("too large a push: %v: %s", err, out)
	}
	same("a refused push")
	g.Run("reset", "-q", "--hard", "HEAD~1")

	ctx, cancel := context.WithCancel(context.Background())
	uploading(ctx, t, s)
	if _, r, _ := usage(t, s); r < 1<<20 {
		t.Errorf("%d bytes reserved during an upload", r)
	}
	cancel()
	same("an upload that broke off")

	uploading(context.Background(), t, s)
	s.Kill()
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	same("a killed server")

	g.Save("c", noise(1<<20))
	g.Run("push", "-q", remote, "main")
	before, _, _ := usage(t, s)
	operate("org", "quota", harness.Org, "--bytes", "1TiB") // counts anew
	if again, _, p := usage(t, s); again != before || p != 2 {
		t.Errorf("%d bytes used, %d when counted anew; %d packs", before, again, p)
	}

	operate("repo", "delete", "app", "--org", harness.Org)
	operate("repo", "undelete", "app", "--org", harness.Org)
	operate("repo", "quota", "app", "--org", harness.Org, "--bytes", "2MiB")
	operate("repo", "retention", "app", "--org", harness.Org, "--ephemeral", "30d")
	g.Save("d", noise(1<<20))
	if out, err := g.Try("push", remote, "main"); err == nil || !strings.Contains(out, "the repository may have 2097152 bytes") {
		t.Errorf("a push above the limit of the repository: %v: %s", err, out)
	}
	operate("repo", "delete", "app", "--org", harness.Org)
	operate("repo", "purge", "app", "--org", harness.Org)
	if u, r, p := usage(t, s); u != 0 || r != 0 || p != 0 {
		t.Errorf("after a purge: %d bytes used, %d reserved, %d packs", u, r, p)
	}
}

// uploading begins a commit of which much has arrived and the rest never comes,
// until ctx ends; it returns when room is reserved for it.
func uploading(ctx context.Context, t *testing.T, s *harness.Server) {
	t.Helper()
	in, out := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, "POST", s.URL+harness.RepoPath("app")+"/commit-pack", in)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.Token(harness.Grant{Repo: "app", Scopes: []auth.Scope{auth.GitWrite}}))
	go func() {
		if resp, err := s.HTTP().Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	fmt.Fprintln(out, `{"metadata":{"target_branch":"main","commit_message":"never","author":{"name":"A","email":"a@example.com"},"files":[`+
		`{"path":"x","content_id":"1"},{"path":"y","content_id":"2"}]}}`)
	fmt.Fprintf(out, `{"blob_chunk":{"content_id":"1","data":"%s","eof":true}}`+"\n", noise(1<<19))
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if _, r, _ := usage(t, s); r > 0 {
			return
		}
		if time.Since(begin) > 60*time.Second {
			t.Fatal("nothing was reserved")
		}
	}
}
