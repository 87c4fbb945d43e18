package workspace

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/testkit"
	"github.com/cairnstate/cairn/internal/tree"
	"github.com/ncruces/go-sqlite3"
)

// resetting is the journal mode of a writer that begins its log anew all the time.
const resetting = "wal; PRAGMA wal_autocheckpoint = 1"

const writerEnv = "CAIRN_TEST_DATABASE_WRITER"

// synchronous says how a writer in each journal mode waits for the disk. Without
// waiting it leaves hardly any time between its transactions.
var synchronous = map[string]string{"wal": "NORMAL", "wal; PRAGMA wal_autocheckpoint = 1": "OFF", "delete": "FULL", "truncate": "OFF", "persist": "OFF"}

func TestMain(m *testing.M) {
	if args := os.Getenv(writerEnv); args != "" {
		path, mode, _ := strings.Cut(args, "|")
		if err := writeDatabase(path, mode); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// writeDatabase commits without a pause until standard input ends. Every
// transaction keeps the sum of all balances.
func writeDatabase(path, mode string) error {
	db, err := sqlite3.Open("file:" + path)
	if err != nil {
		return err
	}
	defer db.Close()
	err = db.Exec(`PRAGMA journal_mode = ` + mode + `; PRAGMA cache_size = 20; PRAGMA synchronous = ` + synchronous[mode] + `;
		CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, note TEXT);
		CREATE INDEX by_note ON accounts (note);
		WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
			INSERT INTO accounts SELECT i, 100, hex(randomblob(40)) FROM n;`)
	if err != nil {
		return err
	}
	if mode == resetting { // it takes longer to read this than the log lasts
		err := db.Exec(`CREATE TABLE pad (b BLOB);
			WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 48) INSERT INTO pad SELECT randomblob(1000000) FROM n;`)
		if err != nil {
			return err
		}
	}
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stop)
	}()
	fmt.Println("ready")
	for n := 0; ; n++ {
		select {
		case <-stop:
			fmt.Println("committed", n)
			return nil
		default:
		}
		a, b := n*7919%2000+1, n*104729%2000+1
		err := db.Exec(fmt.Sprintf(`BEGIN IMMEDIATE;
			UPDATE accounts SET balance = balance - 5, note = hex(randomblob(40)) WHERE id = %d;
			UPDATE accounts SET note = hex(randomblob(40)) WHERE id %% 97 = %d;
			UPDATE accounts SET balance = balance + 5 WHERE id = %d;
			COMMIT;`, a, n%97, b))
		if err != nil {
			return fmt.Errorf("commit %d: %w", n, err)
		}
	}
}

// checkDatabase reports what is wrong with a database.
func checkDatabase(path string) error {
	db, err := sqlite3.Open("file:" + path)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, q := range []struct{ query, want string }{
		{"PRAGMA integrity_check", "ok"},
		{"SELECT count(*) || ' ' || sum(balance) FROM accounts", "2000 200000"},
	} {
		st, _, err := db.Prepare(q.query)
		if err != nil {
			return err
		}
		got := "nothing"
		if st.Step() {
			got = st.ColumnText(0)
		}
		if err := st.Close(); err != nil {
			return err
		}
		if got != q.want {
			return fmt.Errorf("%s: %s, want %s", q.query, got, q.want)
		}
	}
	return nil
}

// startWriter starts a process that commits to a database. stop ends it, and says
// what it committed.
func startWriter(t *testing.T, path, mode string) (stop func() string) {
	t.Helper()
	writer := exec.Command(os.Args[0])
	writer.Env = append(os.Environ(), writerEnv+"="+path+"|"+mode)
	in, err := writer.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := writer.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := writer.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewScanner(stdout)
	if !out.Scan() || out.Text() != "ready" {
		t.Fatalf("the writer says %q", out.Text())
	}
	return func() string {
		in.Close()
		if !out.Scan() || !strings.HasPrefix(out.Text(), "committed ") {
			t.Errorf("the writer says %q", out.Text())
		}
		if err := writer.Wait(); err != nil {
			t.Errorf("the writer: %v", err)
		}
		return out.Text()
	}
}

// TestADatabaseWhoseLogIsBegunAnewIsCapturedWhole captures a database that takes
// longer to read than its log lasts. The writer must not notice.
func TestADatabaseWhoseLogIsBegunAnewIsCapturedWhole(t *testing.T) {
	dir, src := t.TempDir(), &tree.Memory{}
	stop := startWriter(t, dir+"/app.db", resetting)
	for round := range 2 {
		res, err := Scan(t.Context(), options(dir), src)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		res.Close()
		to := filepath.Join(t.TempDir(), "to")
		restored(t, to, src, res.Root, nil)
		if err := checkDatabase(to + "/app.db"); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := os.RemoveAll(to); err != nil {
			t.Fatal(err)
		}
	}
	t.Log("the writer", stop())
	if err := checkDatabase(dir + "/app.db"); err != nil {
		t.Errorf("the database itself: %v", err)
	}
}

// TestABusyDatabaseIsCapturedWholeOrMarked captures a database 100 times while
// another process commits to it without a pause, restores it, and lets SQLite
// check it.
func TestABusyDatabaseIsCapturedWholeOrMarked(t *testing.T) {
	for _, mode := range []string{"wal", "delete", "truncate", "persist"} {
		t.Run(mode, func(t *testing.T) {
			dir, src := t.TempDir(), &tree.Memory{}
			stop := startWriter(t, dir+"/app.db", mode)
			rounds := 25
			if testkit.Soaking() || mode == "wal" || mode == "delete" {
				rounds = 100
			}
			o := options(dir)
			o.MarkMixed = true
			o.Cache = filepath.Join(t.TempDir(), "cache")
			marked := 0
			for round := range rounds {
				res := capture(t, o, src)
				to := filepath.Join(t.TempDir(), "to")
				restored(t, to, src, res.Root, nil)
				if res.Mixed.Total > 0 {
					marked++
				} else if err := checkDatabase(to + "/app.db"); err != nil {
					t.Fatalf("round %d: a capture that is not marked: %v", round, err)
				}
				if err := os.RemoveAll(to); err != nil {
					t.Fatal(err)
				}
			}
			committed := stop()
			t.Logf("%d of %d captures are marked; the writer %s", marked, rounds, committed)
			if marked > rounds/2 {
				t.Errorf("%d of %d captures are marked", marked, rounds)
			}
			if err := checkDatabase(dir + "/app.db"); err != nil {
				t.Errorf("the database itself: %v", err)
			}
		})
	}
}

// TestWhatIsBesideADatabaseIsReadWithIt changes one of the files of a database at
// a time.
func TestWhatIsBesideADatabaseIsReadWithIt(t *testing.T) {
	dir, m := t.TempDir(), &tree.Memory{}
	page := databaseMagic + strings.Repeat("p", 1000)
	for name, text := range map[string]string{
		"a.db": page, "a.db-wal": strings.Repeat("w", 100), "a.db-shm": "s", "a.db-x": "other", "b.db": page,
		"c-wal": "no database", "d": "no database", "d-journal": "no journal",
	} {
		write(t, dir+"/"+name, text)
	}
	o := options(dir)
	o.Cache = filepath.Join(t.TempDir(), "cache")
	reads := func(what string, want uint64) *Result {
		t.Helper()
		time.Sleep(trustAge + 100*time.Millisecond)
		res := capture(t, o, m)
		if res.Read.Files != want {
			t.Errorf("%s: %d files were read, want %d", what, res.Read.Files, want)
		}
		plain := o
		plain.Cache = ""
		if again := capture(t, plain, m); again.Root != res.Root {
			t.Errorf("%s: without the cache it is another tree", what)
		}
		return res
	}
	reads("first", 6) // what is beside a database counts as part of it
	reads("nothing changed", 0)
	write(t, dir+"/a.db-wal", strings.Repeat("W", 100))
	reads("a log changed", 1)
	write(t, dir+"/b.db-journal", strings.Repeat("j", 100))
	write(t, dir+"/d", "still none")
	res := reads("a journal came", 2)

	to := filepath.Join(t.TempDir(), "to")
	restored(t, to, m, res.Root, nil)
	compare(t, "restored", snapshot(t, to), snapshot(t, dir))

	o.Cache = ""
	o.Secrets = []Secret{{"S", strings.Repeat("W", 50)}}
	if res := capture(t, o, m); res.Mixed.Total != 1 || res.Mixed.Paths[0].Path != "r/a.db-wal" {
		t.Errorf("a secret in a log: %+v", res.Mixed)
	}
	o.Secrets = nil
	o.Policy.Exclude = []string{"*-wal"}
	if res := capture(t, o, m); res.Mixed.Total != 1 || res.Mixed.Paths[0].Path != "r/a.db-wal" || res.LeftOut.Total != 2 {
		t.Errorf("a log that is left out: %+v, %+v", res.Mixed, res.LeftOut)
	}
}
