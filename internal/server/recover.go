package server

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/cluster"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// Recovery says who belongs to a cluster that has lost its majority for good, in
// the folder of a coordinator that is stopped.
type Recovery struct {
	ID, Dir string
	Servers map[string]string // raft addresses by id
	Logger  *slog.Logger
}

// Run recovers.
func (r Recovery) Run() error {
	dir := filepath.Join(r.Dir, "raft")
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is not the folder of a coordinator", r.Dir)
	}
	var servers []cluster.Server
	for _, id := range slices.Sorted(maps.Keys(r.Servers)) {
		servers = append(servers, cluster.Server{ID: id, Address: r.Servers[id]})
	}
	return cluster.Recover(cluster.Config{ID: r.ID, Dir: dir, Machine: state.NewMachine(), Format: state.Format, Logger: r.Logger}, servers)
}
