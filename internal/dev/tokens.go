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

// workerToken has the cluster make the workers' token, unless they have one.
func (c *cluster) workerToken(ctx context.Context) error {
	path := filepath.Join(c.Dir, workerFile)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	cl, err := client.Dial(client.Config{Addresses: c.addresses(), Token: c.token})
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, tokenMost)
	defer cancel()
	for {
		r, err := cl.CreateToken(ctx, &pb.CreateTokenRequest{Name: "workers", Role: string(state.WorkerBot)})
		if err == nil {
			return writeSecret(path, r.Secret)
		}
		select { // the coordinators have just been started
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("making the workers' token: %w", err)
		}
	}
}

// writeSecret writes a line into a file for its owner's eyes only.
func writeSecret(path, text string) error {
	return atomicfile.WriteBytes(path, 0o600, []byte(text+"\n"))
}
