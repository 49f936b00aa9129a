package dev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
	"github.com/ulisse-gp/ulisse/internal/auth"
	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/identity"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// Files in Dir with the tokens of a cluster that asks for them: its
// administrator's, who is the user, and its workers', which need one where they
// have no certificates.
const (
	adminFile  = "admin-token"
	workerFile = "worker-token"
)

// tokenMost bounds how long the coordinators may take to find a leader and to
// make a token.
const tokenMost = time.Minute

// adminToken returns the administrator's token, and makes one if there is none.
func (c *cluster) adminToken() (string, error) {
	path := filepath.Join(c.Dir, adminFile)
	text, err := client.ReadToken(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return text, err
	}
	text, _ = auth.NewToken()
	return text, writeSecret(path, text)
}

// tokens waits until the coordinators know the administrator's token, and has them make the workers',
// if these need one and have none.
func (c *cluster) tokens(ctx context.Context) error {
	cfg := client.Config{Addresses: c.addresses(), Token: c.token}
	if c.TLS {
		cfg.TLS = tlsFiles(filepath.Join(c.Dir, tlsFolder), string(identity.Client))
	}
	cl, err := client.Dial(cfg)
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, tokenMost)
	defer cancel()
	for {
		_, err := cl.WhoAmI(ctx)
		if err == nil {
			return c.workerToken(ctx, cl)
		}
		select { // the coordinators have just been started
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("waiting for the administrator's token to be known: %w", err)
		}
	}
}

// workerToken has the cluster make the workers' token, where they need one and have none.
func (c *cluster) workerToken(ctx context.Context, cl *client.Client) error {
	path := filepath.Join(c.Dir, workerFile)
	if _, err := os.Stat(path); c.TLS || c.Workers == 0 || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	r, err := cl.CreateToken(ctx, &pb.CreateTokenRequest{Name: "workers", Role: string(state.WorkerBot)})
	if err != nil {
		return fmt.Errorf("making the workers' token: %w", err)
	}
	return writeSecret(path, r.Secret)
}

// writeSecret writes a line into a file for its owner's eyes only.
func writeSecret(path, text string) error {
	return atomicfile.WriteBytes(path, 0o600, []byte(text+"\n"))
}
