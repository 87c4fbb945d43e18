package cli

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/testkit"
)

// commitTo writes a file upon a branch over REST and returns the status and the
// answer.
func commitTo(t *testing.T, client *terminal, branch string) (int, string) {
	t.Helper()
	token := strings.TrimSpace(client.must("token", "--repo", "r", "--scope", "git:write"))
	body := fmt.Sprintf("{\"metadata\":{\"target_branch\":%q,\"commit_message\":\"m\",\"author\":{\"name\":\"A\",\"email\":\"a@example.com\"},"+
		"\"files\":[{\"path\":\"f\",\"content_id\":\"c\"}]}}\n{\"blob_chunk\":{\"content_id\":\"c\",\"data\":%q,\"eof\":true}}\n",
		branch, base64.StdEncoding.EncodeToString([]byte(t.Name()+branch+token)))
	req, err := http.NewRequest(http.MethodPost, client.vars["CAIRN_URL"]+"/api/repos/r/commit-pack", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/x-ndjson")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

// TestServerKeys gives a running server keys to sign with, and takes them away.
func TestServerKeys(t *testing.T) {
	client, op, _ := operated(t)
	client.must("repo", "create", "r")
	client.must("repo", "protect", "r", "--rule", "main=verify-sig")
	commits := func(name string, want int, part string) {
		t.Helper()
		if status, answer := commitTo(t, client, "main"); status != want || !strings.Contains(answer, part) {
			t.Errorf("%s: %d %s", name, status, answer)
		}
	}
	commits("without a key", 403, "cairn org signing-key generate")

	type key struct {
		Fingerprint string `json:"fingerprint"`
		Kind        string `json:"kind"`
		Title       string `json:"title"`
		PublicKey   string `json:"public_key"`
		Server      bool   `json:"server"`
		CreatedAt   string `json:"created_at"`
	}
	var first, second key
	op.document(&first, "org", "signing-key", "generate", "acme")
	if first.Kind != "ssh" || !first.Server || first.Title != "cairn server of acme" || !strings.HasPrefix(first.PublicKey, "ssh-ed25519 ") {
		t.Errorf("generated %+v", first)
	}
	commits("with a key", 201, "commit_sha")

	s := testkit.NewSigners(t)
	path, public := s.NewSSH("mine", "ed25519")
	private, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	op.document(&second, "org", "signing-key", "import", "acme", "--private-key", path, "--title", "CI")
	if second.Title != "CI" || !strings.HasPrefix(public, second.PublicKey) {
		t.Errorf("imported %+v", second)
	}
	commits("with another", 201, "commit_sha")
	var list struct {
		Keys []key `json:"signing_keys"`
	}
	op.document(&list, "org", "signing-key", "list", "acme")
	if len(list.Keys) != 2 || list.Keys[0].Server || !list.Keys[1].Server {
		t.Errorf("the keys are %+v", list.Keys)
	}
	if out := op.must("org", "signing-key", "list", "acme"); strings.Count(out, "the server signs with it") != 1 {
		t.Errorf("listed %s", out)
	}

	// Nothing that is stored holds the private half.
	text := strings.Split(string(private), "\n")
	err = filepath.WalkDir(op.vars["CAIRN_DATA"], func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		stored, err := os.ReadFile(p)
		if bytes.Contains(stored, []byte(text[2])) || bytes.Contains(stored, []byte("OPENSSH PRIVATE")) {
			t.Errorf("%s holds the private key", filepath.Base(p))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	op.must("org", "signing-key", "stop", "acme")
	commits("once it was stopped", 403, "cairn org signing-key generate")
	op.refused(4, "does not sign", "org", "signing-key", "stop", "acme")
	op.must("org", "signing-key", "import", "acme", "--private-key", path)
	commits("once it is back", 201, "commit_sha")
	op.must("org", "signing-key", "remove", "acme", second.Fingerprint)
	commits("once its public half was removed", 403, "cairn org signing-key generate")

	op.refused(2, "--private-key", "org", "signing-key", "import", "acme")
	op.refused(2, "cannot read", "org", "signing-key", "import", "acme", "--private-key", path+".missing")
	op.refused(2, "cannot be used", "org", "signing-key", "import", "acme", "--private-key", path+".pub")
	s.Relock(path, "hunter22")
	op.refused(2, "has a passphrase", "org", "signing-key", "import", "acme", "--private-key", path)
	op.refused(4, `no org "other"`, "org", "signing-key", "generate", "other")
	op.refused(4, `no org "other"`, "org", "signing-key", "stop", "other")
}
