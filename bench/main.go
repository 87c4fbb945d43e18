// Command bench measures a Cairn server beside git http-backend, in one run on one
// machine: both serve the same repositories, git's repacked with bitmaps and a
// commit-graph. It prints a table and writes it as JSON.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/cairnstate/cairn/tests/harness"
)

// result is the document that is written.
type result struct {
	Version string    `json:"version"`
	Time    time.Time `json:"time"`
	CPUs    int       `json:"cpus"`
	Go      string    `json:"go"`
	Git     string    `json:"git"`
	FsyncMS float64   `json:"fsync_ms"`
	Quick   bool      `json:"quick"`
	PeakMB  float64   `json:"server_peak_memory_mb"`
	Rows    []row     `json:"rows"`
	Peer    string    `json:"peer"`
}

func main() {
	quick := flag.Bool("quick", false, "smaller repositories and shorter rounds")
	file := flag.String("json", "", "write the result to this `FILE` (default bench/results/DATE-VERSION.json)")
	only := flag.String("only", "", "measure only rows whose name contains this `TEXT`")
	flag.Parse()
	if err := run(*quick, *file, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(quick bool, file, only string) error {
	project, err := harness.Root()
	if err != nil {
		return err
	}
	version, err := git(project, "", "describe", "--tags", "--always", "--dirty")
	if err != nil {
		version = "unknown"
	}
	dir, err := os.MkdirTemp("", "cairn-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary, err := harness.Build(version)
	if err != nil {
		return err
	}
	if os.Getenv("CAIRN_BIN") == "" {
		defer os.RemoveAll(filepath.Dir(binary))
	}
	b := &bench{root: filepath.Join(dir, "peer"), rounds: 5, slice: 3 * time.Second, quick: quick}
	if quick {
		b.rounds, b.slice = 3, time.Second
	}
	if err := os.MkdirAll(b.root, 0o755); err != nil {
		return err
	}
	if b.peer, err = harness.StartBackend(b.root); err != nil {
		return err
	}
	defer b.peer.Close()
	if b.cairn, err = harness.Start(binary, dir, harness.Options{Args: []string{"--log-level", "warn"}}); err != nil {
		return err
	}
	defer b.cairn.Kill()

	r := result{Version: version, Time: time.Now().UTC().Truncate(time.Second), CPUs: runtime.NumCPU(), Go: runtime.Version(), Quick: quick,
		Peer: "git http-backend below Go's CGI host"}
	if r.Git, err = git(dir, "", "version"); err != nil {
		return err
	}
	if r.FsyncMS, err = fsyncTime(dir); err != nil {
		return err
	}
	if r.Rows, err = b.measure(only); err != nil {
		return err
	}
	r.PeakMB = peakMemory(b.cairn.PID())
	print(os.Stdout, r)
	return write(r, project, file)
}

// measure runs every row.
func (b *bench) measure(only string) ([]row, error) {
	tiny, err := makeFixture(b, "tiny", 3, 1)
	if err != nil {
		return nil, err
	}
	files, commits := 4000, 19000
	if b.quick {
		commits = 2000
	}
	large, err := makeFixture(b, "large", files, commits)
	if err != nil {
		return nil, err
	}
	objects, err := git(filepath.Join(b.root, "large.git"), "", "rev-list", "--all", "--objects", "--count")
	if err != nil {
		return nil, err
	}
	one := func(r row, err error) ([]row, error) { return []row{r}, err }
	works := []struct {
		name string
		run  func(name string) ([]row, error)
	}{
		{"ref listing, tiny repository, 8 connections", func(n string) ([]row, error) {
			return one(b.rates(row{Work: n, Goal: "30 x", Target: 30}, tiny, lsRefs()))
		}},
		{"depth-1 fetch, tiny repository, 8 connections", func(n string) ([]row, error) {
			return one(b.rates(row{Work: n, Goal: "40 x", Target: 40}, tiny, fetch(1, tiny.tip)))
		}},
		{"depth-1 fetch, 4,000 files", func(n string) ([]row, error) {
			return b.answers(row{Work: n, Goal: "4 x", Target: 4}, large, fetch(1, large.tip))
		}},
		{"full clone, " + objects + " objects", func(n string) ([]row, error) {
			return b.answers(row{Work: n, Goal: "3 x", Target: 3}, large, fetch(0, large.tip))
		}},
		{"small push, whole git push process", func(n string) ([]row, error) {
			return one(b.pushes(row{Work: n, Goal: "half the time", Target: 2}, tiny))
		}},
		{"commit API, 3 files, alone (p50)", func(n string) ([]row, error) {
			return one(b.commitsAlone(row{Work: n, Goal: "under 1 ms", Target: 1}, tiny))
		}},
		{"commit API, 3 files, 8 writers", func(n string) ([]row, error) {
			return one(b.commitsTogether(row{Work: n, Goal: "2,500/s", Target: 2500}, tiny))
		}},
	}
	var rows []row
	for _, w := range works {
		if !strings.Contains(w.name, only) {
			continue
		}
		fmt.Fprintln(os.Stderr, w.name)
		more, err := w.run(w.name)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// fsyncTime is the median time of a small durable write, in ms.
func fsyncTime(dir string) (float64, error) {
	f, err := os.CreateTemp(dir, "fsync-")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var times []float64
	for range 51 {
		start := time.Now()
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		times = append(times, float64(time.Since(start))/1e6)
	}
	return median(times), nil
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

func print(w io.Writer, r result) {
	fmt.Fprintf(w, "cairn %s beside %s; %d CPUs, fsync %.2f ms\n\n", r.Version, r.Git, r.CPUs, r.FsyncMS)
	fmt.Fprintf(w, "%-48s %14s %14s %8s  %-14s %s\n", "work", "cairn", "http-backend", "ratio", "goal", "reached")
	for _, row := range r.Rows {
		peer, ratio := "", ""
		if row.Peer != 0 {
			peer, ratio = fmt.Sprintf("%.4g %s", row.Peer, row.Unit), fmt.Sprintf("%.2f x", row.Ratio)
		}
		fmt.Fprintf(w, "%-48s %14s %14s %8s  %-14s %3.0f %%\n", row.Work, fmt.Sprintf("%.4g %s", row.Cairn, row.Unit), peer, ratio, row.Goal, 100*row.reached())
	}
	fmt.Fprintf(w, "\nserver's peak memory %.0f MB\n", r.PeakMB)
}

func write(r result, project, file string) error {
	if file == "" {
		file = filepath.Join(project, "bench", "results", r.Time.Format("2006-01-02")+"-"+r.Version+".json")
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
