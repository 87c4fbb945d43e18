package testkit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// postgresCluster is a private PostgreSQL server that lives as long as the test
// process.
type postgresCluster struct {
	bin  string
	port int
	as   *syscall.SysProcAttr
	made atomic.Int64 // databases
	end  io.Closer    // keeps the server's keeper waiting while it is reachable
}

var (
	postgresMutex  sync.Mutex
	postgresServer *postgresCluster
)

// Postgres returns the connection string of a fresh, empty database on a private
// PostgreSQL server, which the first call starts and which ends with the test
// process. The database is dropped when the test ends. Without PostgreSQL's
// programs the test fails, unless the variable SKIP names "postgres".
func Postgres(tb testing.TB) string {
	tb.Helper()
	bin, err := findPostgres()
	if err != nil {
		if slices.Contains(strings.FieldsFunc(os.Getenv("SKIP"), func(r rune) bool { return r == ',' || r == ' ' }), "postgres") {
			tb.Skipf("SKIP names postgres and it is not there: %v", err)
		}
		tb.Fatalf("no PostgreSQL to test against: %v (install the package postgresql, or set SKIP=postgres)", err)
	}
	postgresMutex.Lock()
	if postgresServer == nil {
		if postgresServer, err = startPostgres(bin); err != nil {
			postgresMutex.Unlock()
			tb.Fatalf("start PostgreSQL: %v", err)
		}
	}
	server := postgresServer
	postgresMutex.Unlock()

	name := fmt.Sprintf("test_%d", server.made.Add(1))
	if err := server.tool(tb.Context(), "createdb", name); err != nil {
		tb.Fatalf("create a database: %v", err)
	}
	tb.Cleanup(func() {
		if err := server.tool(context.Background(), "dropdb", "--force", name); err != nil {
			tb.Errorf("drop the test's database: %v", err)
		}
	})
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", server.port, name)
}

// findPostgres returns the directory of the newest installed server's programs.
func findPostgres() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		return n
	}
	slices.SortFunc(found, func(a, b string) int { return version(a) - version(b) })
	if len(found) > 0 {
		return filepath.Dir(found[len(found)-1]), nil
	}
	initdb, err := exec.LookPath("initdb")
	return filepath.Dir(initdb), err
}

// postgresKeeper runs a server ($1/postgres) on $2/data until its standard input
// ends, which happens when the test process does, however it ends. Then it stops
// that server and removes $2.
const postgresKeeper = `"$1/postgres" -D "$2/data" -p "$3" -c listen_addresses=127.0.0.1 -c unix_socket_directories= \
	-c max_connections=300 -c shared_buffers=64MB </dev/null >>"$2/log" 2>&1 &
server=$!
read -r nothing
kill -INT "$server"
wait "$server"
cd / && rm -rf "$2"`

// startPostgres makes a cluster and starts its server on a free loopback port.
// PostgreSQL refuses to run as root, so then it runs as the user postgres.
func startPostgres(bin string) (*postgresCluster, error) {
	dir, err := os.MkdirTemp("", "cairn-postgres-")
	if err != nil {
		return nil, err
	}
	server := &postgresCluster{bin: bin, as: &syscall.SysProcAttr{Setpgid: true}}
	started := false
	defer func() {
		if !started {
			os.RemoveAll(dir)
		}
	}()
	if os.Geteuid() == 0 {
		if err := server.become("postgres", dir); err != nil {
			return nil, err
		}
	}
	if server.port, err = freePort(); err != nil {
		return nil, err
	}
	initdb := server.command(context.Background(), "initdb", "-D", filepath.Join(dir, "data"),
		"-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	initdb.Dir = dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	keeper := exec.Command("/bin/sh", "-c", postgresKeeper, "sh", bin, dir, strconv.Itoa(server.port))
	keeper.SysProcAttr, keeper.Dir = server.as, dir
	if server.end, err = keeper.StdinPipe(); err != nil {
		return nil, err
	}
	if err := keeper.Start(); err != nil {
		return nil, err
	}
	started = true // from here the keeper removes the directory
	if err := server.await(); err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "log"))
		return nil, errors.Join(fmt.Errorf("%w: %s", err, log), server.end.Close(), keeper.Wait())
	}
	return server, nil
}

// become makes the cluster's programs run as a user, and gives them dir.
func (p *postgresCluster) become(name, dir string) error {
	u, err := user.Lookup(name)
	if err != nil {
		return err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return err
	}
	p.as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return os.Chown(dir, int(uid), int(gid))
}

// await waits until the server answers.
func (p *postgresCluster) await() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		err := p.tool(ctx, "pg_isready", "-q")
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// tool runs one of PostgreSQL's client programs against the server.
func (p *postgresCluster) tool(ctx context.Context, program string, args ...string) error {
	args = append([]string{"-h", "127.0.0.1", "-p", strconv.Itoa(p.port), "-U", "postgres"}, args...)
	cmd := p.command(ctx, program, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, out)
	}
	return nil
}

func (p *postgresCluster) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, program), args...)
	cmd.SysProcAttr, cmd.Dir = p.as, "/"
	return cmd
}

// freePort returns a loopback port that nothing listens on.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
