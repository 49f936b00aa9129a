package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/server"
)

// recoverCommand rewrites the membership of a coordinator that is stopped.
func (a *App) recoverCommand() *cobra.Command {
	var r server.Recovery
	var servers []string
	c := &cobra.Command{
		Use:   "recover --dir DIR --id ID --servers ID=ADDRESS,...",
		Short: "Let what is left of a cluster go on that has lost its majority for good",
		Long: `Rewrite who belongs to the cluster in the folder of a coordinator that is
stopped, for when a majority of the coordinators is lost for good. What this
coordinator has in its log is then taken as agreed upon.

Recover the survivor with the longest log, with itself as the only server; start
it with --bootstrap-expect 0, and let new coordinators join it through --peers.
Or recover all survivors, each with the same list of all of them. Coordinators
that were not recovered must never meet the new cluster again: delete their
folders. While a majority can be brought back, bring it back instead.`,
		Example: `  ulisse cluster recover --dir a --id a --servers a=10.0.0.1:7001
  ulisse coordinator --id a --dir a --bootstrap-expect 0 --raft 10.0.0.1:7001 --listen 10.0.0.1:7000`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if r.Servers, err = parseServers(servers); err != nil {
				return badInput(err)
			}
			if r.Dir == "" || r.ID == "" || len(r.Servers) == 0 {
				return badInput(errors.New("give --dir, --id and --servers"))
			}
			if _, ok := r.Servers[r.ID]; !ok {
				return badInput(fmt.Errorf("--servers does not name %s itself", r.ID))
			}
			if _, err := os.Stat(r.Dir); errors.Is(err, fs.ErrNotExist) {
				return badInput(fmt.Errorf("--dir %s: there is no such folder", r.Dir))
			}
			if r.Logger, err = a.logger("warn"); err != nil {
				return err
			}
			if err := r.Run(); err != nil {
				return err
			}
			fmt.Fprintf(a.Stderr, "%s: the cluster is now %s\n", r.Dir, strings.Join(servers, ", "))
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&r.Dir, "dir", "", "the coordinator's `folder`, as its own --dir")
	f.StringVar(&r.ID, "id", "", "the coordinator's `name`, as its own --id")
	f.StringSliceVar(&servers, "servers", nil, "the coordinators that remain, with their addresses for each other: `id=host:port`,...")
	return c
}

// parseServers reads a list of id=address.
func parseServers(list []string) (map[string]string, error) {
	out := map[string]string{}
	for _, s := range list {
		id, address, ok := strings.Cut(s, "=")
		if _, _, err := net.SplitHostPort(address); !ok || id == "" || err != nil {
			return nil, fmt.Errorf("--servers %q: give id=host:port", s)
		}
		if _, twice := out[id]; twice {
			return nil, fmt.Errorf("--servers names %s twice", id)
		}
		out[id] = address
	}
	return out, nil
}
