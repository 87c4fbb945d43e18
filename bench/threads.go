package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cairnstate/cairn/sdk/go"
	"github.com/cairnstate/cairn/sdk/go/checkpoint"
	"github.com/cairnstate/cairn/sdk/go/option"
	"github.com/cairnstate/cairn/tests/harness"
)

// remote is a store of checkpoints on a server, with a token for every thread.
func remote(s *harness.Server) (*checkpoint.Remote, error) {
	client, err := cairn.NewClient(option.WithBaseURL(s.URL), option.WithToken(s.Token(harness.Grant{Thread: "*"})))
	if err != nil {
		return nil, err
	}
	return checkpoint.NewRemote(client), nil
}

// chain makes so many checkpoints of a small workspace, each with one change, and
// compares the last hundred with the first. Then it forks the last one.
func (b *bench) chain(rows []row, checkpoints int) error {
	s, done, err := b.fresh()
	if err != nil {
		return err
	}
	defer done()
	store, err := remote(s)
	if err != nil {
		return err
	}
	defer store.Close()
	dir, err := os.MkdirTemp(b.dir, "chain-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	root := filepath.Join(dir, "w")
	for i := range 200 {
		path := filepath.Join(root, fmt.Sprint(i%10), fmt.Sprintf("%d.txt", i))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(newWords(uint64(i)).text(200)), 0o644); err != nil {
			return err
		}
	}
	ctx := context.Background()
	times := make([]float64, 0, checkpoints)
	last := ""
	for i := range checkpoints {
		if err := os.WriteFile(filepath.Join(root, "0", "state.txt"), fmt.Appendf(nil, "step %d\n", i), 0o644); err != nil {
			return err
		}
		start := time.Now()
		c, err := checkpoint.Capture(ctx, checkpoint.CaptureParams{Store: store, Blobs: store, Thread: "chain",
			Roots: []checkpoint.Root{{Name: "w", Path: root}}, StateDir: filepath.Join(dir, "state")})
		if err != nil {
			return fmt.Errorf("checkpoint %d: %w", i, err)
		}
		times = append(times, since(start))
		last = c.Checkpoint.ID
	}
	size, err := keptBytes(s)
	if err != nil {
		return err
	}
	// The first are left out: they fill caches.
	rows[0].compare(median(times[len(times)-100:]), median(times[20:120]))
	rows[1].Cairn = float64(size) / float64(checkpoints)
	var forks []float64
	for i := range 50 {
		start := time.Now()
		if _, err := store.ForkFrom(ctx, checkpoint.ForkParams{Checkpoint: last, Thread: fmt.Sprint("fork", i)}); err != nil {
			return fmt.Errorf("fork: %w", err)
		}
		forks = append(forks, since(start))
	}
	rows[2].Cairn = median(forks)
	return nil
}
