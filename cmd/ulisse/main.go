// Command ulisse draws from the posterior of a Gaussian process's covariance
// parameters.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	// Root certificates for where there are none: the image holds nothing else.
	_ "golang.org/x/crypto/x509roots/fallback"

	"github.com/ulisse-gp/ulisse/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	app := cli.NewApp()
	code := app.Execute(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
