package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cairnstate/cairn/tests/harness"
)

// bench is what the measurements share.
type bench struct {
	dir    string // everything of the run
	root   string // the directory that git http-backend serves
	binary string
	quick  bool
	rounds int
	slice  time.Duration // of one measurement of a rate

	peer      *harness.Backend
	shared    *harness.Server // of the small rows; nil until one asks
	histories map[string]history
}

func newBench(dir, binary string, quick bool) (*bench, error) {
	b := &bench{dir: dir, root: filepath.Join(dir, "peer"), binary: binary, quick: quick, rounds: 5, slice: 3 * time.Second, histories: map[string]history{}}
	if quick {
		b.rounds, b.slice = 3, time.Second
	}
	if err := os.MkdirAll(b.root, 0o755); err != nil {
		return nil, err
	}
	var err error
	b.peer, err = harness.StartBackend(b.root)
	return b, err
}

func (b *bench) close() {
	b.peer.Close()
	if b.shared != nil {
		b.shared.Kill()
	}
}

// size chooses a number for the whole run or the quick one.
func (b *bench) size(full, quick int) int {
	if b.quick {
		return quick
	}
	return full
}

// fresh starts a server of its own for one work; done ends it and removes all it
// kept.
func (b *bench) fresh() (s *harness.Server, done func(), err error) {
	dir, err := os.MkdirTemp(b.dir, "server-")
	if err != nil {
		return nil, nil, err
	}
	s, err = harness.Start(b.binary, dir, harness.Options{Args: []string{"--log-level", "warn"}})
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, func() { s.Kill(); os.RemoveAll(dir) }, nil
}

// cairn is the server that the small rows share.
func (b *bench) cairn() (*harness.Server, error) {
	var err error
	if b.shared == nil {
		b.shared, _, err = b.fresh()
	}
	return b.shared, err
}

// restart stops a server properly and starts it again on what it kept, so that
// its memory begins anew and its database is whole in one file.
func restart(s *harness.Server) error {
	if code := s.Stop(); code != 0 {
		return fmt.Errorf("the server ended with %d: %s", code, s.Log())
	}
	return s.Restart()
}

func median(v []float64) float64 { return percentile(v, 50) }

// percentile sorts v and returns the value that p percent of it do not exceed.
func percentile(v []float64, p int) float64 {
	slices.Sort(v)
	return v[min(len(v)*p/100, len(v)-1)]
}

// since is the time that passed, in ms.
func since(start time.Time) float64 { return float64(time.Since(start)) / 1e6 }

// beside measures Cairn and the peer in turn and keeps the medians. Measurements
// are a rate, or a time when less is better.
func (b *bench) beside(r *row, cairn, peer func() (float64, error)) error {
	var ours, theirs []float64
	for range b.rounds {
		v, err := cairn()
		if err != nil {
			return fmt.Errorf("cairn: %w", err)
		}
		ours = append(ours, v)
		if peer == nil {
			continue
		}
		if v, err = peer(); err != nil {
			return fmt.Errorf("%s: %w", r.Beside, err)
		}
		theirs = append(theirs, v)
	}
	if r.Cairn = median(ours); peer != nil {
		r.compare(r.Cairn, median(theirs))
	}
	return nil
}

// together sends requests over connections until each next has no more, and
// returns the number of answers a second. The answer to a fetch must have a pack.
func together(base string, connections int, next func(connection int) func() []byte) (float64, error) {
	var done atomic.Int64
	var wait sync.WaitGroup
	failures := make(chan error, connections)
	start := time.Now()
	for i := range connections {
		wait.Go(func() {
			c, err := dial(base)
			if err != nil {
				failures <- err
				return
			}
			defer c.Close()
			request := next(i)
			for req := request(); req != nil; req = request() {
				_, err := c.do(req)
				if err == nil && bytes.Contains(req, []byte("command=fetch")) {
					_, err = packed(c.head)
				}
				if err != nil {
					failures <- fmt.Errorf("%w: %.300q", err, c.head)
					return
				}
				done.Add(1)
			}
		})
	}
	wait.Wait()
	elapsed := time.Since(start)
	close(failures)
	return float64(done.Load()) / elapsed.Seconds(), <-failures
}

// rate is together for one slice of time.
func (b *bench) rate(base string, connections int, next func(connection int) func() []byte) (float64, error) {
	start := time.Now()
	return together(base, connections, func(connection int) func() []byte {
		request := next(connection)
		return func() []byte {
			if time.Since(start) >= b.slice {
				return nil
			}
			return request()
		}
	})
}

// alone sends requests one after another over a connection and returns the time
// of each in ms.
func alone(base string, n int, next func() []byte) ([]float64, error) {
	c, err := dial(base)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	times := make([]float64, n)
	for i := range times {
		req := next()
		start := time.Now()
		if _, err := c.do(req); err != nil {
			return nil, fmt.Errorf("%w: %.300q", err, c.head)
		}
		times[i] = since(start)
	}
	return times, nil
}

// peakMemory is the most memory that a process had resident, in MB; 0 where the
// system does not tell.
func peakMemory(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib * 1024 / 1e6
		}
	}
	return 0
}

// cpuTime is the processor time that a process has used, in ms; 0 where the system
// does not tell.
func cpuTime(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	const tick = 10 // ms, everywhere that Linux runs Go
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return tick * (user + system)
}

// each notes on a row what processor time the server and this program used for
// each of n requests since before, which is what a rate comes to when others use
// the machine too.
func (r *row) each(s *harness.Server, before cpuUse, n int) {
	now := usedBy(s)
	r.Note = fmt.Sprintf("processor time for each: server %.2f ms, client %.2f ms", (now.server-before.server)/float64(n), (now.client-before.client)/float64(n))
}

// cpuUse is the processor time that the server and this program have used, in ms.
type cpuUse struct{ server, client float64 }

func usedBy(s *harness.Server) cpuUse { return cpuUse{cpuTime(s.PID()), cpuTime(os.Getpid())} }

// stored is the size of all files below a directory, in bytes.
func stored(dir string) (int64, error) {
	total := int64(0)
	err := filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil // gone since its directory was read
		}
		if err == nil && info.Mode().IsRegular() {
			total += info.Size()
		}
		return err
	})
	return total, err
}
