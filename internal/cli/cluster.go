package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// membersView is the group of coordinators as --json prints it.
type membersView struct {
	Leader  string       `json:"leader"`
	Term    uint64       `json:"term"`
	Members []memberView `json:"members"`
}

type memberView struct {
	ID             string  `json:"id"`
	Role           string  `json:"role"` // leader, voter or non-voter
	Healthy        bool    `json:"healthy"`
	RaftAddress    string  `json:"raft_address"`
	GRPCAddress    string  `json:"grpc_address"`
	HTTPAddress    string  `json:"http_address"`
	AppliedIndex   uint64  `json:"applied_index"`
	Lag            uint64  `json:"lag"`
	ContactSeconds float64 `json:"contact_seconds"` // -1: never
	Version        string  `json:"version"`
	Fault          string  `json:"fault,omitempty"` // what it says is wrong with it
}

func newMembersView(m *pb.MembersResponse) membersView {
	v := membersView{Leader: m.Leader, Term: m.Term, Members: []memberView{}}
	for _, c := range m.Members {
		role := "non-voter"
		switch {
		case c.Leader:
			role = "leader"
		case c.Voter:
			role = "voter"
		}
		v.Members = append(v.Members, memberView{c.Id, role, c.Healthy, c.RaftAddress, c.GrpcAddress, c.HttpAddress, c.AppliedIndex, c.Lag, c.ContactSeconds, c.Version, c.Fault})
	}
	return v
}

func (a *App) printMembers(m *pb.MembersResponse, asJSON bool) error {
	v := newMembersView(m)
	if asJSON {
		return a.printJSON(v)
	}
	var rows [][]string
	for _, c := range v.Members {
		health, contact := "healthy", "never"
		switch {
		case c.Fault != "":
			health = "fault"
			fmt.Fprintf(a.Stderr, "%s: %s\n", c.ID, c.Fault)
		case !c.Healthy:
			health = "dead"
		}
		if c.ContactSeconds >= 0 {
			contact = fmt.Sprintf("%.3gs", c.ContactSeconds)
		}
		if c.Role == "leader" {
			contact = ""
		}
		rows = append(rows, []string{c.ID, c.Role, health, strconv.FormatUint(c.Lag, 10), contact, c.GRPCAddress, c.RaftAddress, c.Version})
	}
	if err := a.table("ID ROLE HEALTH LAG CONTACT GRPC RAFT VERSION", rows); err != nil {
		return err
	}
	if v.Leader == "" {
		fmt.Fprintln(a.Stderr, "there is no leader now")
	}
	return nil
}

func (a *App) clusterCommand() *cobra.Command {
	var r remote
	var asJSON bool
	c := &cobra.Command{
		Use:   "cluster",
		Short: "Show and change the group of coordinators",
	}
	group(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknown(c, args[0])
		}
		return a.members(&r, &asJSON)(c, args)
	}
	r.flags(c)
	c.PersistentFlags().BoolVar(&asJSON, "json", false, "print the coordinators as JSON")
	c.AddCommand(&cobra.Command{
		Use:   "members",
		Short: "List the coordinators: the same as 'ulisse cluster'",
		Args:  cobra.NoArgs,
		RunE:  a.members(&r, &asJSON),
	})
	force := false
	for _, m := range []struct {
		use, short string
		act        func(s *session, ctx context.Context, id string) (*pb.MembersResponse, error)
	}{
		{"promote ID", "Make a coordinator a voter once it has caught up", func(s *session, ctx context.Context, id string) (*pb.MembersResponse, error) {
			return s.Promote(ctx, id)
		}},
		{"demote ID", "Take a coordinator's vote", func(s *session, ctx context.Context, id string) (*pb.MembersResponse, error) {
			return s.Demote(ctx, id, force)
		}},
		{"remove ID", "Take a coordinator out of the cluster", func(s *session, ctx context.Context, id string) (*pb.MembersResponse, error) {
			return s.Remove(ctx, id, force)
		}},
		{"transfer [ID]", "Hand leadership to another voter, or to whoever is best", func(s *session, ctx context.Context, id string) (*pb.MembersResponse, error) {
			return s.Transfer(ctx, id)
		}},
	} {
		sub := &cobra.Command{Use: m.use, Short: m.short, Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeMembers(&r)}
		if m.use == "transfer [ID]" {
			sub.Args = cobra.MaximumNArgs(1)
		}
		sub.RunE = a.on(&r, func(ctx context.Context, s *session, args []string) error {
			resp, err := m.act(s, ctx, append(args, "")[0])
			if err != nil {
				return err
			}
			return a.printMembers(resp, asJSON)
		})
		if verb, _, _ := strings.Cut(m.use, " "); verb == "demote" || verb == "remove" {
			sub.Flags().BoolVar(&force, "force", false, "also if no majority of healthy voters would remain: then nothing goes on until the others are back")
		}
		c.AddCommand(sub)
	}
	c.AddCommand(a.backupCommand(&r), a.restoreCommand(&r, &asJSON), a.recoverCommand())
	return c
}

func (a *App) members(r *remote, asJSON *bool) func(*cobra.Command, []string) error {
	return a.on(r, func(ctx context.Context, s *session, _ []string) error {
		m, err := s.Members(ctx)
		if err != nil {
			return err
		}
		return a.printMembers(m, *asJSON)
	})
}

func (a *App) completeMembers(r *remote) cobra.CompletionFunc {
	return a.completion(r, func(ctx context.Context, s *session) ([]cobra.Completion, error) {
		m, err := s.Members(ctx)
		var list []cobra.Completion
		for _, c := range m.GetMembers() {
			list = append(list, cobra.CompletionWithDesc(c.Id, c.GrpcAddress))
		}
		return list, err
	})
}
