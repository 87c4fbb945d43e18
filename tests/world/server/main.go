// Command server serves worlds (see package world) to tests that are not written
// in Go. It prints one line, "listening on URL", and runs until its standard input
// ends or it is killed:
//
//	go run ./tests/world/server [-listen 127.0.0.1:0] [-database-url postgres://…]
//
// POST /control/orgs makes a fresh org on a store of its own (SQLite, or the given
// PostgreSQL database) and answers {"org","token","key"}: a token for every thread
// that is good for a day, and the org's private key. POST /control/clock with that
// token as Bearer and {"now": milliseconds since 1970} makes the org's clock, by
// which leases end, stand at that time. Everything below /api is Cairn's, for the
// org of the token.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/cairnstate/cairn/tests/world"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address")
	database := flag.String("database-url", "", "PostgreSQL database in place of SQLite")
	flag.Parse()
	if err := run(*listen, *database); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(listen, database string) error {
	dir, err := os.MkdirTemp("", "worlds")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	worlds := world.NewServer(dir, database)
	defer worlds.Close()
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	server := http.Server{Handler: worlds}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	fmt.Printf("listening on http://%s\n", l.Addr())
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // an error ends it too
		close(ended)
	}()
	select {
	case err := <-failed:
		return err
	case <-ended:
		return server.Shutdown(context.Background())
	}
}
