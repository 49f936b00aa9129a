package cli

import (
	"fmt"
	"log/slog"

	"google.golang.org/grpc"

	"github.com/ulisse-gp/ulisse/internal/gradients"
	"github.com/ulisse-gp/ulisse/internal/identity"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/tlsconf"
)

// group has workers share the gradients of a network, until it is closed.
func (f *fitFlags) group(d *posterior.Deep) (*gradients.Group, error) {
	files, level := orEnv(f.tls), slog.LevelInfo
	var certs *tlsconf.Source // nil for plaintext
	var err error
	if files.Set() {
		if certs, err = tlsconf.Load(files, tlsconf.Options{Role: identity.Worker}); err != nil {
			return nil, badInput(fmt.Errorf("the certificates, of which workers ask for a worker's: %w", err))
		}
	}
	if f.quiet {
		level = slog.LevelWarn
	}
	g, err := gradients.New(d, gradients.Config{Workers: f.workers, Options: []grpc.DialOption{grpc.WithTransportCredentials(certs.Credentials(identity.Worker))},
		Log: slog.New(slog.NewTextHandler(f.stderr, &slog.HandlerOptions{Level: level}))})
	if err != nil {
		return nil, badInput(fmt.Errorf("--workers: %w: leave it out", err))
	}
	d.Share(g)
	return g, nil
}
