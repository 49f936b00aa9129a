// Command coordinator is 'ulisse coordinator' as a program of its own.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/ulisse-gp/ulisse/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.NewApp().ExecuteCoordinator(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
