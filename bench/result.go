package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// result is the document that is written.
type result struct {
	Version string    `json:"version"`
	Time    time.Time `json:"time"`
	CPUs    int       `json:"cpus"`
	Load    string    `json:"load"` // of the machine when the run began, as in /proc/loadavg
	Go      string    `json:"go"`
	Git     string    `json:"git"`
	FsyncMS float64   `json:"fsync_ms"`
	Quick   bool      `json:"quick"`
	PeakMB  float64   `json:"server_peak_memory_mb"` // of the server that the small rows share
	Rows    []row     `json:"rows"`
}

// row is one line of the result.
type row struct {
	Work   string  `json:"work"`
	Unit   string  `json:"unit"`
	Cairn  float64 `json:"cairn"`
	Peer   float64 `json:"peer,omitempty"`
	Ratio  float64 `json:"ratio,omitempty"`  // how many times better than the peer
	Beside string  `json:"beside,omitempty"` // what the peer is
	Goal   string  `json:"goal"`
	Target float64 `json:"target"` // what Ratio, or without a peer Cairn, is to reach
	Less   bool    `json:"less_is_better"`
	Note   string  `json:"note,omitempty"` // why there is no figure, or what to know about it
}

// compare sets the figures of a row that has a peer.
func (r *row) compare(cairn, peer float64) {
	r.Cairn, r.Peer, r.Ratio = cairn, peer, cairn/peer
	if r.Less {
		r.Ratio = peer / cairn
	}
}

// reached is the share of the goal that was reached: 1 or more is done.
func (r *row) reached() float64 {
	switch {
	case r.Cairn == 0 || r.Target == 0:
		return 0
	case r.Peer != 0:
		return r.Ratio / r.Target
	case r.Less:
		return r.Target / r.Cairn
	}
	return r.Cairn / r.Target
}

// print writes the table.
func print(w io.Writer, r result) {
	fmt.Fprintf(w, "cairn %s beside %s; %d CPUs, fsync %.2f ms, load %s\n\n", r.Version, r.Git, r.CPUs, r.FsyncMS, r.Load)
	fmt.Fprintf(w, "%-62s %14s %14s %8s  %-14s %7s  %s\n", "work", "cairn", "peer", "ratio", "goal", "reached", "peer is")
	for _, row := range r.Rows {
		cairn, peer, ratio, reached := "not available", "", "", ""
		if row.Cairn != 0 {
			cairn, reached = fmt.Sprintf("%.4g %s", row.Cairn, row.Unit), fmt.Sprintf("%.0f %%", 100*row.reached())
		}
		if row.Target == 0 {
			reached = ""
		}
		if row.Peer != 0 {
			peer, ratio = fmt.Sprintf("%.4g %s", row.Peer, row.Unit), fmt.Sprintf("%.2f x", row.Ratio)
		}
		fmt.Fprintf(w, "%-62s %14s %14s %8s  %-14s %7s  %s\n", row.Work, cairn, peer, ratio, row.Goal, reached, row.Beside)
		if row.Note != "" {
			fmt.Fprintf(w, "    %s\n", row.Note)
		}
	}
	if r.PeakMB != 0 {
		fmt.Fprintf(w, "\npeak memory of the server that the small rows share: %.0f MB\n", r.PeakMB)
	}
}

// write keeps the result as JSON.
func write(r result, project, file string) error {
	if file == "" {
		file = filepath.Join(project, "bench", "results", r.Time.Format("2006-01-02-1504")+"-"+r.Version+".json")
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
