package hostile_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/cairnstate/cairn/tests/harness"
)

// sizeOf reads an answer to its end without keeping it.
func sizeOf(t *testing.T, s *harness.Server, path, token string, header map[string]string) (status int, size int64) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("t", token)
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	size, err = io.Copy(io.Discard, resp.Body)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return resp.StatusCode, size
}

// TestHostileStored brings in what is valid and costly, and reads it: memory stays
// bounded, and it does not stand in anybody's way.
func TestHostileStored(t *testing.T) {
	s := harness.Serve(t, harness.Options{Args: []string{"--unseen-grace", "1ms"}})
	public := commit(publicTree.id())
	createPublic(t, s, "r", public)
	token := tokenOf(s, "r")
	second := commit(publicTree.id(), public.id())
	mustPush(t, s, "r", token, pack(second), command(zero, second.id(), "refs/heads/work"))

	// Trees in one another, in a repository that was forced: what others read
	// must be found by walking everything.
	deep, deepest := deepTrees(20_000)
	mustPush(t, s, "r+ephemeral", token, deep, command(zero, deepest, "refs/heads/deep"))
	mustPush(t, s, "r", token, pack(), command(second.id(), public.id(), "refs/heads/work"))
	for _, id := range []string{deepest, public.id(), publicTree.id()} {
		if a := fetch(t, s, "r", token, 2, fetchV2("want "+id, "done")); !hasPack(a) {
			t.Errorf("fetch %s: %.300q", id, a.Body)
		}
	}
	if a := fetch(t, s, "r", token, 2, fetchV2("want "+second.id(), "done")); hasPack(a) {
		t.Errorf("the commit that was forced away is served")
	}
	g := harness.NewGit(t)
	g.Run("clone", "-q", "--bare", "--filter=blob:none", s.Remote(harness.Grant{Repo: "r"}, "+ephemeral"), "deep")
	for _, path := range []string{"/archive?ephemeral=true&ref=deep", "/files?ephemeral=true&limit=5000&ref=deep"} {
		if status, _ := sizeOf(t, s, harness.RepoPath("r")+path, token, nil); status != http.StatusBadRequest {
			t.Errorf("%s: %d, want 400", path, status)
		}
	}

	// A delta of a kilobyte whose result is large.
	base := entry(blobEntry, 1<<20, nil, deflate(make([]byte, 1<<20)))
	large := copies(1<<20, 1<<20, bomb>>20, bomb)
	id := zeroBlob(bomb)
	file, link := tree("100644 big", id), tree("120000 big", id)
	branches := []object{commit(file.id()), commit(link.id())}
	p := raw(6, base, entry(ofsEntry, uint64(len(large)), back(uint64(len(base))), deflate(large)), whole(file), whole(link), whole(branches[0]), whole(branches[1]))
	mustPush(t, s, "r", token, p, command(zero, branches[0].id(), "refs/heads/file"), command(zero, branches[1].id(), "refs/heads/link"))
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			if status, n := sizeOf(t, s, harness.RepoPath("r")+"/file?path=big&ref=file", token, map[string]string{"Range": fmt.Sprintf("bytes=%d-", bomb-10)}); status != http.StatusPartialContent || n != 10 {
				t.Errorf("the end of a large file: %d, %d bytes", status, n)
			}
		})
	}
	clients.Wait()
	if status, _ := sizeOf(t, s, harness.RepoPath("r")+"/archive?ref=file", token, nil); status != http.StatusOK {
		t.Errorf("archive of a large file: %d", status)
	}
	if status, _ := sizeOf(t, s, harness.RepoPath("r")+"/archive?ref=link", token, nil); status != http.StatusBadRequest {
		t.Errorf("archive of a link with a large target: %d, want 400", status)
	}
	thin := object{kind: refEntry, base: id, data: append(append(varint(bomb), varint(5)...), 5, 'h', 'e', 'l', 'l', 'o')}
	mustPush(t, s, "r", token, pack(thin), command(zero, blob("hello").id(), "refs/tags/thin"))
	if a := fetch(t, s, "r", token, 0, pkt("want "+id+"\n")+"0000"+pkt("done\n")); !hasPack(a) {
		t.Errorf("fetch of a large blob: %.100q", a.Body)
	}

	// As many refs, and files of one commit, as there may be.
	commands := make([]string, 30_000)
	for i := range commands {
		commands[i] = command(zero, public.id(), fmt.Sprintf("refs/heads/many/%d", i))
	}
	mustPush(t, s, "r", token, pack(), commands...)
	for i := range commands {
		commands[i] = command(public.id(), zero, fmt.Sprintf("refs/heads/many/%d", i))
	}
	mustPush(t, s, "r", token, nil, commands...)
	var files, chunks strings.Builder
	for i := range 90_000 {
		fmt.Fprintf(&files, `{"path":"%d/%d","content_id":"%d"},`, i%300, i, i)
		chunks.WriteString(chunk(fmt.Sprint(i), fmt.Sprintf("%08d", i), "true"))
	}
	body := metadata(files.String()+`{"path":"a","content_id":"a"}`) + chunks.String() + ended
	a := request(t, s, http.MethodPost, harness.RepoPath("r")+"/commit-pack", token, map[string]string{"Content-Type": "application/x-ndjson"}, strings.NewReader(body))
	if a.Status != http.StatusCreated {
		t.Errorf("commit of 90,000 files: %d %s", a.Status, a.Body)
	}
	if now := peak(t, s); now > memoryLimit {
		t.Errorf("the server took %d KiB, more than %d", now, memoryLimit)
	} else {
		t.Logf("the server took %d KiB", now)
	}
	if left := scratchFiles(t, s); len(left) > 0 {
		t.Errorf("scratch files are left: %q", left)
	}
}
