package hostile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/cairnstate/cairn/tests/harness"
)

// peak is the most memory in KiB that the server ever had.
func peak(tb testing.TB, s *harness.Server) int {
	tb.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID()))
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
			if err != nil {
				tb.Fatal(err)
			}
			return kib
		}
	}
	tb.Fatal("no VmHWM in /proc")
	return 0
}

// files lists what the server keeps beside its database: blobs, scratch and cache.
func files(tb testing.TB, s *harness.Server) []string {
	tb.Helper()
	var all []string
	root := filepath.Join(s.Dir, "data")
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !strings.HasPrefix(d.Name(), "cairn.db") {
			all = append(all, strings.TrimPrefix(path, root))
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// rowCounts counts the rows of every table of a stopped server, but for the
// heartbeats of servers that were.
func rowCounts(tb testing.TB, s *harness.Server) map[string]int {
	tb.Helper()
	db, err := sqlite3.OpenFlags(filepath.Join(s.Dir, "data", "cairn.db"), sqlite3.OPEN_READONLY)
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	counts := map[string]int{}
	each := func(query string, yield func(*sqlite3.Stmt)) {
		stmt, _, err := db.Prepare(query)
		if err != nil {
			tb.Fatal(err)
		}
		for stmt.Step() {
			yield(stmt)
		}
		if err := stmt.Close(); err != nil {
			tb.Fatal(err)
		}
	}
	var tables []string
	each("SELECT name FROM sqlite_schema WHERE type = 'table'", func(s *sqlite3.Stmt) { tables = append(tables, s.ColumnText(0)) })
	for _, table := range tables {
		each(fmt.Sprintf("SELECT count(*) FROM %q", table), func(s *sqlite3.Stmt) { counts[table] = s.ColumnInt(0) })
	}
	delete(counts, "processes")
	if counts["repos"] == 0 || counts["refs"] == 0 {
		tb.Fatalf("the database has the rows %v", counts)
	}
	return counts
}

// scratchFiles lists what lies in the server's scratch folder.
func scratchFiles(tb testing.TB, s *harness.Server) []string {
	tb.Helper()
	return slices.DeleteFunc(files(tb, s), func(path string) bool { return !strings.Contains(path, "/scratch/") })
}
