// Command bench measures a Cairn server beside its peers, in one run on one
// machine: git http-backend over repositories repacked with bitmaps and a
// commit-graph, git index-pack, or Cairn itself in a simpler state. It prints a
// table and writes it as JSON.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/cairnstate/cairn/tests/harness"
)

// options are the flags.
type options struct {
	quick, full bool
	file, only  string
}

func main() {
	var o options
	flag.BoolVar(&o.quick, "quick", false, "smaller repositories and shorter rounds")
	flag.BoolVar(&o.full, "full", false, "also the rows that take more than a few minutes each")
	flag.StringVar(&o.file, "json", "", "write the result to this `FILE` (default bench/results/TIME-VERSION.json)")
	flag.StringVar(&o.only, "only", "", "measure only works whose name contains this `TEXT`")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(o options) error {
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
	b, err := newBench(dir, binary, o.quick)
	if err != nil {
		return err
	}
	defer b.close()
	r := result{Version: version, Time: time.Now().UTC().Truncate(time.Second), CPUs: runtime.NumCPU(), Go: runtime.Version(), Quick: o.quick}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		r.Load = strings.Join(strings.Fields(string(load))[:3], " ")
	}
	if r.Git, err = git(dir, "", "version"); err != nil {
		return err
	}
	if r.FsyncMS, err = fsyncTime(dir); err != nil {
		return err
	}
	for _, w := range works(o.quick) {
		if !strings.Contains(w.name, o.only) || w.long && !o.full && o.only == "" {
			continue
		}
		start := time.Now()
		if err := w.run(b, w.rows); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		fmt.Fprintf(os.Stderr, "%s: %.1f s\n", w.name, time.Since(start).Seconds())
		r.Rows = append(r.Rows, w.rows...)
	}
	if b.shared != nil {
		r.PeakMB = peakMemory(b.shared.PID())
	}
	print(os.Stdout, r)
	return write(r, project, o.file)
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
		times = append(times, since(start))
	}
	return median(times), nil
}
