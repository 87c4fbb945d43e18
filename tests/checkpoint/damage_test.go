package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cairnstate/cairn/internal/frame"
	"github.com/cairnstate/cairn/internal/tree"
	"github.com/cairnstate/cairn/tests/harness"
)

// noise is what no compression makes smaller.
func noise(seed uint64, n int) string {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, 7))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}

// TestDamagedStore flips bytes of stored packs, cuts them off, and removes them: a
// restore changes nothing, fsck and the server's scrubber name what is damaged, and the
// next capture of the files heals it.
func TestDamagedStore(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"one byte": func(path string) error {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			b[len(b)/3] ^= 1
			return os.WriteFile(path, b, 0o600)
		},
		"half": func(path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			return os.Truncate(path, info.Size()/2)
		},
		"empty": func(path string) error { return os.Truncate(path, 0) },
		"gone":  os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			server := harness.Serve(t, harness.Options{})
			a, b := newSandbox(t, server, "t"), newSandbox(t, server, "t")
			a.write(map[string]string{"large": noise(1, 3<<20), "small": "s"})
			a.capture()
			mine := map[string]string{"mine": "keep", "small": "another"}
			b.write(mine)
			server.Kill()
			n := 0
			var damaged string
			err := filepath.WalkDir(filepath.Join(server.Dir, "data"), func(path string, d fs.DirEntry, err error) error {
				if err != nil || !d.Type().IsRegular() || strings.Contains(d.Name(), ".db") {
					return err
				}
				info, err := d.Info()
				if err != nil || info.Size() < 1<<20 {
					return err
				}
				n++
				damaged = strings.TrimPrefix(strings.TrimSuffix(d.Name(), ".pack"), "content~")
				return damage(path)
			})
			if err != nil || n == 0 {
				t.Fatalf("%d packs, %v", n, err)
			}
			if err := server.Restart(); err != nil {
				t.Fatal(err)
			}
			if r := b.run("restore", "--root", b.dir, "--yes"); r.status != 1 || !strings.Contains(r.stderr, "damaged") {
				t.Errorf("restored: %+v", r)
			}
			b.has(mine)
			if out, err := server.Operate("fsck"); err == nil || !strings.Contains(out, damaged) && !strings.Contains(out, "in no pack") {
				t.Errorf("fsck does not name %s, or what it held: %s, %v", damaged, out, err)
			}
			soon(t, "the scrubber's word of "+damaged, func() bool {
				return strings.Contains(server.Log(), "stored objects of org") && strings.Contains(server.Log(), damaged)
			})
			a.write(map[string]string{"more": "m"})
			a.capture()
			b.want(0, "restore", "--root", b.dir, "--yes")
			b.has(a.files())
			// What only the first one had, its top directory, nobody can send again.
			a.want(0, "checkpoint", "prune", "--keep-last", "1")
			for range 2 {
				if out, err := server.Operate("gc"); err != nil {
					t.Errorf("gc: %v\n%s", err, out)
				}
			}
			if out, err := server.Operate("fsck"); err != nil {
				t.Errorf("fsck of what was healed: %v\n%s", err, out)
			}
			b.write(map[string]string{"large": "another"})
			b.want(0, "restore", "--root", b.dir, "--yes")
			b.has(a.files())
		})
	}
}

// TestHostileServer restores from a server that answers with other objects than were
// asked for: nothing in the workspace changes.
func TestHostileServer(t *testing.T) {
	server := harness.Serve(t, harness.Options{})
	a := newSandbox(t, server, "t")
	a.write(map[string]string{"large": noise(2, 3<<20), "d/small": "s"})
	a.capture()
	each := func(change func(*tree.Object)) func([]byte) []byte {
		return func(b []byte) (out []byte) {
			for r := frame.NewReader(bytes.NewReader(b)); ; {
				o, err := r.Next()
				if err != nil {
					return out
				}
				o.Bytes = bytes.Clone(o.Bytes)
				change(&o)
				out = frame.Append(out, o)
			}
		}
	}
	bomb := frame.Append(nil, tree.Object{Kind: tree.Recipe, Digest: tree.Sum(nil), Bytes: make([]byte, tree.MaxList)})
	for name, change := range map[string]func([]byte) []byte{
		"nothing":        func([]byte) []byte { return nil },
		"half":           func(b []byte) []byte { return b[:len(b)/2] },
		"another byte":   each(func(o *tree.Object) { o.Bytes[len(o.Bytes)-1] ^= 1 }),
		"another object": each(func(o *tree.Object) { o.Bytes[0] ^= 1; o.Digest = tree.Sum(o.Bytes) }),
		"empty objects":  each(func(o *tree.Object) { o.Bytes = nil }),
		"bombs":          func([]byte) []byte { return bytes.Repeat(bomb, 1000) },
		"no frames":      func([]byte) []byte { return bytes.Repeat([]byte{0xff}, 1<<20) },
	} {
		target, err := url.Parse(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		proxy := httputil.NewSingleHostReverseProxy(target)
		proxy.ModifyResponse = func(r *http.Response) error {
			if !strings.HasSuffix(r.Request.URL.Path, "/blobs/get") || r.StatusCode != http.StatusOK {
				return nil
			}
			b, err := io.ReadAll(r.Body)
			b = change(b)
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
			r.Header.Set("Content-Length", fmt.Sprint(len(b)))
			return err
		}
		front := httptest.NewServer(proxy)
		b := newSandbox(t, server, "t")
		b.url = front.URL
		mine := map[string]string{"mine": "keep", "d": "a file"}
		b.write(mine)
		if r := b.run("restore", "--root", b.dir, "--yes"); r.status == 0 {
			t.Errorf("%s: %d %s %.500s", name, r.status, r.stdout, r.stderr)
		}
		b.has(mine)
		front.Close()
	}
}

// TestManyWriters has 20 writers append at the same time through two servers on one
// database and bucket: each head has one successor.
func TestManyWriters(t *testing.T) {
	one := harness.Serve(t, harness.OnPostgresAndS3(t, harness.Options{}))
	servers := []*harness.Server{one, one.Beside(t)}
	token := one.Token(harness.Grant{Thread: "t"})
	const writers, each = 20, 3
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := map[string]string{} // by the head that it was appended onto
	for w := range writers {
		wg.Go(func() {
			s := servers[w%2]
			client := s.HTTP()
			defer client.CloseIdleConnections()
			for n := range each {
				root, stream := smallTree(t, fmt.Sprintf("writer %d, %d", w, n))
				upload := fmt.Sprintf("u%d-%d", w, n)
				if a, err := s.Do(client, "POST", "/api/threads/t/blobs?upload="+upload, token, "application/vnd.cairn.objects", stream); err != nil || a.Status != http.StatusOK {
					t.Errorf("send: %v %d %s", err, a.Status, a.Body)
					return
				}
				for {
					a, err := s.Do(client, "GET", "/api/threads/t", token, "", nil)
					var thread struct{ Head string }
					if err != nil || json.Unmarshal(a.Body, &thread) != nil {
						t.Errorf("%v %s", err, a.Body)
						return
					}
					head := "null"
					if thread.Head != "" {
						head = `"` + thread.Head + `"`
					}
					body := fmt.Sprintf(`{"root":%q,"upload":%q,"expected_head":%s}`, root, upload, head)
					a, err = s.Do(client, "POST", "/api/threads/t/checkpoints", token, "application/json", []byte(body))
					if err != nil || a.Status != http.StatusCreated && a.Status != http.StatusConflict && a.Status != http.StatusServiceUnavailable {
						t.Errorf("%v %d %s", err, a.Status, a.Body)
						return
					}
					if a.Status == http.StatusCreated {
						mu.Lock()
						if other, twice := won[thread.Head]; twice {
							t.Errorf("both %s and %s follow %q", other, a.Body, thread.Head)
						}
						won[thread.Head] = a.Text("head")
						mu.Unlock()
						break
					}
				}
			}
		})
	}
	wg.Wait()
	last, n := "", 0
	for next, ok := won[last]; ok; next, ok = won[last] {
		last, n = next, n+1
	}
	if n != writers*each {
		t.Errorf("a chain of %d, want %d", n, writers*each)
	}
}

// smallTree makes a workspace of one file and returns its root and its objects.
func smallTree(t *testing.T, text string) (root string, stream []byte) {
	emit := func(kind tree.Kind, b []byte) tree.Digest {
		o := tree.Object{Kind: kind, Digest: tree.Sum(b), Bytes: b}
		stream = frame.Append(stream, o)
		return o.Digest
	}
	e := tree.Entry{Name: "f", Type: tree.File, Mode: 0o644, Content: tree.Content{Size: uint64(len(text)), Digest: emit(tree.Chunk, []byte(text))}}
	e.Content.Sum = e.Content.Digest
	b := tree.Builder{Emit: func(o tree.Object) error { emit(o.Kind, o.Bytes); return nil }}
	err := b.Add(&e)
	top := tree.Entry{Name: "w", Type: tree.Directory, Mode: 0o755}
	if err == nil {
		top.Dir, top.Paged, top.Summary, err = b.Finish()
	}
	data, rootErr := tree.EncodeRoot(&tree.Tree{Roots: []tree.Entry{top}})
	if err != nil || rootErr != nil {
		t.Error(err, rootErr)
	}
	return emit(tree.Root, data).String(), stream
}
