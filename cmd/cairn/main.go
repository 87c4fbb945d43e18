// Command cairn is the place where sandboxes keep their state: server, operator
// commands and client in one program.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/cairnstate/cairn/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	code := cli.Main(ctx, os.Args[1:], cli.System())
	stop()
	os.Exit(code)
}
