package quota_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/cairnstate/cairn/tests/harness"
)

// TestRecountUnderWork counts an org anew, again and again, while it is written to,
// forked, compacted and deleted from: what is kept count of stays what there is.
func TestRecountUnderWork(t *testing.T) {
	for name, options := range map[string]harness.Options{"embedded": {}, "apart": harness.OnPostgresAndS3(t, harness.Options{})} {
		t.Run(name, func(t *testing.T) { recounts(t, harness.Serve(t, options)) })
	}
}

func recounts(t *testing.T, s *harness.Server) {
	operate := func(args ...string) {
		if out, err := s.Operate(args...); err != nil {
			t.Errorf("%v: %v: %s", args, err, out)
		}
	}
	repos := []string{"one", "two"}
	for _, r := range repos {
		if err := s.CreateRepo(r); err != nil {
			t.Fatal(err)
		}
	}
	operate("org", "quota", harness.Org, "--bytes", "1TiB", "--repo-bytes", "1TiB", "--repos", "1000")
	working, stop := context.WithTimeout(t.Context(), 8*time.Second)
	defer stop()
	var work sync.WaitGroup
	commits := make([]int, len(repos))
	for i, r := range repos {
		work.Go(func() {
			token := s.Token(harness.Grant{Repo: r})
			client := s.HTTP()
			defer client.CloseIdleConnections()
			for ; working.Err() == nil; commits[i]++ {
				c := harness.Commit{Repo: r, Branch: "main", Message: "Save", Token: token, Files: map[string]string{
					fmt.Sprint("f", commits[i]%20): noise(500 << (commits[i] % 9)),
				}}
				if a, err := s.Commit(client, c); err != nil || a.Status != http.StatusCreated {
					t.Errorf("commit to %s: %v %d %s", r, err, a.Status, a.Body)
					return
				}
			}
		})
	}
	forks := 0
	work.Go(func() {
		for ; working.Err() == nil; forks++ {
			fork := fmt.Sprint("fork", forks)
			if err := s.Fork(fork, "one"); err != nil {
				t.Errorf("fork: %v", err)
				return
			}
			c := harness.Commit{Repo: fork, Branch: "main", Message: "Save", Token: s.Token(harness.Grant{Repo: fork}), Files: map[string]string{"own": noise(100 << 10)}}
			if a, err := s.Commit(s.HTTP(), c); err != nil || a.Status != http.StatusCreated {
				t.Errorf("commit to a fork: %v %d %s", err, a.Status, a.Body)
			}
			if forks%3 == 2 {
				operate("repo", "delete", fork, "--org", harness.Org)
				operate("repo", "purge", fork, "--org", harness.Org)
			}
		}
	})
	rounds := 0
	work.Go(func() {
		for ; working.Err() == nil; rounds++ {
			operate("gc", "--full")
			operate("org", "quota", harness.Org, "--bytes", fmt.Sprint(int64(1)<<40+int64(rounds)))
		}
	})
	work.Wait()
	t.Logf("%v commits, %d forks, %d recounts", commits, forks, rounds)
	if commits[0] == 0 || commits[1] == 0 || forks == 0 || rounds == 0 {
		t.Fatal("not everything happened")
	}
	same := func(after string) {
		t.Helper()
		for range 20 {
			kept, _, before := usage(t, s)
			operate("org", "quota", harness.Org, "--bytes", "1TiB") // counts anew
			counted, reserved, packs := usage(t, s)
			switch {
			case before != packs: // work in the background has not ended
				time.Sleep(500 * time.Millisecond)
			case kept != counted, reserved != 0, packs == 0, kept == 0:
				t.Fatalf("after %s: %d bytes are kept count of, %d are there; %d are reserved, %d packs", after, kept, counted, reserved, packs)
			default:
				return
			}
		}
		t.Fatalf("after %s: packs keep changing", after)
	}
	same("the work")
	operate("gc", "--full")
	same("a collection")
	operate("repo", "delete", "one", "--org", harness.Org)
	operate("repo", "purge", "one", "--org", harness.Org)
	same("the purge of a repository with forks")
}
