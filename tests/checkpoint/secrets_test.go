package checkpoint

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cairnstate/cairn/internal/tree"
	"github.com/cairnstate/cairn/sdk/go/checkpoint"
	"github.com/cairnstate/cairn/tests/harness"
)

// TestSecretsAreNowhere puts 20 secrets wherever a workspace can have them, and
// looks for them in every object, row, log and state file.
func TestSecretsAreNowhere(t *testing.T) {
	server := harness.Serve(t, harness.Options{})
	s := newSandbox(t, server, "t")
	var secrets []string
	args := []string{"--outside-links", "keep", "--policy", "full"}
	for i := range 20 {
		b := make([]byte, 12)
		_, _ = rand.Read(b)
		secret := fmt.Sprintf("s%d-%s", i, hex.EncodeToString(b))
		if i == 19 {
			secret = "with \"quotes\" \\ and ünïcode " + secret
		}
		secrets = append(secrets, secret)
		s.env = append(s.env, fmt.Sprintf("SECRET_%d=%s", i, secret))
		args = append(args, "--secret-env", fmt.Sprintf("SECRET_%d", i))
	}
	hide(t, s, secrets)
	conversation := filepath.Join(t.TempDir(), "conversation.json")
	message, err := json.Marshal([]any{map[string]any{"text": "use " + strings.Join(secrets, " and "), secrets[3]: []string{secrets[4]}}})
	if err == nil {
		err = os.WriteFile(conversation, message, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	id := s.capture(append(args, "--label", "with "+secrets[5], "--conversation", conversation)...)
	before := s.files()
	s.write(map[string]string{"more": "x"})
	s.capture(append(args, "--label", secrets[6])...)

	store := remote(t, server.URL, s.token)
	c, err := store.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	find := func(where string, b []byte) {
		for i, secret := range secrets {
			quoted, _ := json.Marshal(secret)
			if bytes.Contains(b, []byte(secret)) || bytes.Contains(b, quoted[1:len(quoted)-1]) {
				t.Errorf("secret %d is in %s", i, where)
			}
		}
	}
	find("the label", []byte(c.Label))
	find("the conversation", c.Conversation[0])
	n := objects(t, store, c, find)
	server.Kill()
	for _, dir := range []string{server.Dir, s.home} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			b, err := os.ReadFile(path)
			find(path, b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	find("the log", []byte(server.Log()))
	if n < 10 {
		t.Errorf("only %d objects were looked at", n)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	// A restore over the live files leaves their secrets alone, one with them puts them back.
	s.restore("--checkpoint", id)
	s.has(before)
	fresh := newSandbox(t, server, "t")
	fresh.env = s.env
	fresh.restore(append([]string{"--checkpoint", id}, args[4:]...)...)
	fresh.has(before)
}

// hide writes secrets into files of all sizes, across the borders of reads and
// chunks, into targets of links and into attributes.
func hide(t *testing.T, s *sandbox, secrets []string) {
	t.Helper()
	s.write(map[string]string{
		".npmrc": "//registry/:_authToken=" + secrets[0] + "\n", ".env": "A=" + secrets[1] + "\nB=" + secrets[2],
		"all": strings.Join(secrets, ""), "empty": "",
	})
	large := make([]byte, 9<<20)
	_, _ = rand.Read(large)
	for i, secret := range secrets {
		for border, times := range map[int]int{64 << 10: 1 + i, 1 << 20: 1 + i%8, 4 << 20: 1 + i%2} { // reads, and the largest chunk
			copy(large[border*times-len(secret)/2:], secret)
		}
	}
	copy(large[len(large)-len(secrets[7]):], secrets[7])
	s.write(map[string]string{"large": string(large)})
	if err := os.Symlink("/run/secrets/"+secrets[8], filepath.Join(s.dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(filepath.Join(s.dir, "all"), "user.token", []byte(secrets[9]), 0); err != nil {
		t.Logf("no attributes here: %v", err)
	}
}

// objects calls find with the bytes of every object of a checkpoint.
func objects(t *testing.T, store *checkpoint.Remote, c *checkpoint.Checkpoint, find func(string, []byte)) (n int) {
	t.Helper()
	src := &source{store, c.Thread}
	b, err := tree.FetchOne(t.Context(), src, c.Root)
	if err != nil {
		t.Fatal(err)
	}
	find("the root", b)
	root, err := tree.DecodeRoot(b)
	if err != nil {
		t.Fatal(err)
	}
	var nodes []tree.Node
	for i := range root.Roots {
		nodes = append(nodes, tree.NodeOf(root.Roots[i].Name, &root.Roots[i]))
	}
	err = tree.Walk(t.Context(), src, nodes, func(_ tree.Node, entries []tree.Entry, descend func(*tree.Entry)) error {
		for i := range entries {
			e := &entries[i]
			find("an entry", tree.AppendEntry(nil, e))
			n++
			if e.Type == tree.Directory {
				descend(e)
				continue
			}
			var content bytes.Buffer
			if e.Type == tree.File {
				if err := tree.Copy(t.Context(), src, e.Content, &content); err != nil {
					return err
				}
			}
			find("the contents of "+e.Name, content.Bytes())
			n++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
