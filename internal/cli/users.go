package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
	"github.com/ulisse-gp/ulisse/internal/auth"
	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/server"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// usersFlags adds what a coordinator is told of users.
func usersFlags(f *pflag.FlagSet, u *server.Users) {
	f.StringVar(&u.Auth, "auth", server.AuthNone, "who may call: none (everybody may everything) or tokens")
	f.StringVar(&u.TokenFile, "bootstrap-token-file", "", "`file` with the first administrator's token, written if it is not there (default: admin-token in --dir)")
	u.OIDC = &auth.OIDC{}
	f.StringVar(&u.OIDC.Issuer, "oidc-issuer", "", "take tokens of this OpenID Connect provider, too (`URL`)")
	f.StringVar(&u.OIDC.ClientID, "oidc-client-id", "", "`audience` that these tokens are for")
	f.StringVar(&u.OIDC.GroupsClaim, "oidc-groups-claim", "groups", "`name` of the claim with a user's groups")
	f.StringArrayVar(&u.Grants, "oidc-grant", nil, "what a group may do, `GROUP=ROLE:NAMESPACE[,NAMESPACE]` (again for more)")
	f.StringVar(&u.Audit, "audit", "", "append what changes something, and what is refused, to this `file`; of strangers to one of its name and .strangers")
	f.BoolVar(&u.AuditReads, "audit-reads", false, "keep in --audit also who took data, draws or predictions")
	f.Float64Var(&u.Rate, "rate", 500, "calls a second of each caller; 0 for no limit")
	f.IntVar(&u.Streams, "streams", 1000, "open streams of each caller; 0 for no limit")
}

// tokenView is a token as --json prints it.
type tokenView struct {
	ID         string     `json:"id"`
	Name       string     `json:"name"`
	Role       string     `json:"role"`
	Namespaces []string   `json:"namespaces"`
	State      string     `json:"state"` // valid, expired or revoked
	Created    *time.Time `json:"created"`
	Expires    *time.Time `json:"expires"`
	CreatedBy  string     `json:"created_by"`
	Secret     string     `json:"secret,omitempty"`
}

func (a *App) newTokenView(k *pb.Token) tokenView {
	v := tokenView{ID: k.Id, Name: k.Name, Role: k.Role, Namespaces: some(k.Namespaces), State: "valid", Created: client.Moment(k.Created),
		Expires: client.Moment(k.Expires), CreatedBy: k.CreatedBy}
	switch {
	case k.Revoked != nil:
		v.State = "revoked"
	case k.Expires != nil && !a.Now().Before(k.Expires.AsTime()):
		v.State = "expired"
	}
	return v
}

func (a *App) tokensCommand() *cobra.Command {
	var r remote
	c := &cobra.Command{
		Use:   "tokens",
		Short: "Make, list and revoke the tokens of users and workers",
		Long: `Make, list and revoke the tokens by which a cluster knows its users (coordinators
with --auth tokens). A token has a role and namespaces:

  viewer     looks at jobs, draws, data and workers
  submitter  also submits jobs and data, and looks after its own jobs
  admin      also looks after all jobs of its namespaces, and their tokens;
             with all namespaces (*) also after the cluster
  worker     for workers, where they have no certificates
  backup     makes backups ('ulisse cluster backup'), and nothing else

The cluster keeps a hash only: the token is printed once.`,
	}
	group(c)
	r.flags(c)
	c.AddCommand(a.tokensCreate(&r), a.tokensList(&r), &cobra.Command{
		Use:   "revoke ID",
		Short: "End a token's validity, also for what is under way",
		Args:  cobra.ExactArgs(1),
		RunE: a.on(&r, func(ctx context.Context, s *session, args []string) error {
			k, err := s.RevokeToken(ctx, args[0])
			if err == nil {
				fmt.Fprintf(a.Stdout, "%s, of %s, is revoked\n", k.Id, k.Name)
			}
			return err
		}),
		ValidArgsFunction: a.completion(&r, func(ctx context.Context, s *session) ([]cobra.Completion, error) {
			tokens, err := s.Tokens(ctx)
			var list []cobra.Completion
			for _, k := range tokens {
				if k.Revoked == nil {
					list = append(list, cobra.CompletionWithDesc(k.Id, k.Name+", "+k.Role))
				}
			}
			return list, err
		}),
	})
	return c
}

func (a *App) tokensCreate(r *remote) *cobra.Command {
	req := &pb.CreateTokenRequest{}
	var lifetime time.Duration
	var asJSON bool
	var out string
	c := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a token for a user and print it",
		Example: `  ulisse tokens create alice --role submitter --for lab --lifetime 2160h
  ulisse tokens create w1 --role worker --out w1.token`,
		Args: cobra.ExactArgs(1),
		RunE: a.on(r, func(ctx context.Context, s *session, args []string) error {
			if req.Name = args[0]; lifetime < 0 {
				return badInput(errors.New("--lifetime: give a positive time, or 0 for one without end"))
			}
			if lifetime > 0 {
				req.Lifetime = durationpb.New(lifetime)
			}
			if who, err := s.WhoAmI(ctx); err == nil && who.User == "" {
				a.note("this cluster asks nobody for a token: tokens count once its coordinators are started with --auth tokens")
			}
			resp, err := s.CreateToken(ctx, req)
			if err != nil {
				return err
			}
			if out != "" { // for nobody else to read: else it would be refused
				if err := atomicfile.WriteBytes(out, 0o600, []byte(resp.Secret+"\n")); err != nil {
					return fmt.Errorf("the token was made (%s) and could not be written: revoke it: %w", resp.Token.Id, err)
				}
				fmt.Fprintf(a.Stderr, "the token %s of %s is in %s\n", resp.Token.Id, resp.Token.Name, out)
				if !asJSON {
					return nil
				}
			}
			if asJSON {
				v := a.newTokenView(resp.Token)
				if out == "" {
					v.Secret = resp.Secret
				}
				return a.printJSON(v)
			}
			fmt.Fprintln(a.Stdout, resp.Secret)
			fmt.Fprintf(a.Stderr, "the token %s of %s: this is the only time that it is shown\n", resp.Token.Id, resp.Token.Name)
			return nil
		}),
	}
	f := c.Flags()
	f.StringVar(&req.Role, "role", "viewer", "viewer, submitter, admin, worker or backup")
	f.StringSliceVar(&req.Namespaces, "for", nil, "`namespaces` that it is for; '*' for all (default: the one that you work in)")
	f.DurationVar(&lifetime, "lifetime", 90*24*time.Hour, "`time` until it expires; 0 for never")
	f.StringVarP(&out, "out", "o", "", "write the token into this `file`, which only its owner can read")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (a *App) tokensList(r *remote) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List tokens; those that ended more than a month ago may be gone",
		Args:  cobra.NoArgs,
		RunE: a.on(r, func(ctx context.Context, s *session, _ []string) error {
			tokens, err := s.Tokens(ctx)
			if err != nil {
				return err
			}
			views := []tokenView{}
			var rows [][]string
			for _, k := range tokens {
				v := a.newTokenView(k)
				views = append(views, v)
				expires := "never"
				if v.Expires != nil {
					expires = v.Expires.UTC().Format(time.DateTime)
				}
				rows = append(rows, []string{v.ID, v.Name, v.Role, strings.Join(v.Namespaces, ","), v.State, expires, v.CreatedBy})
			}
			if asJSON {
				return a.printJSON(views)
			}
			return a.table("ID NAME ROLE NAMESPACES STATE EXPIRES BY", rows)
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// quotaView is a quota, or what is used of it; 0 in a quota means no bound.
type quotaView struct {
	Jobs   int64 `json:"jobs"`
	Chains int64 `json:"chains"`
	Draws  int64 `json:"draws"`
	Bytes  int64 `json:"bytes"`
}

type namespaceView struct {
	Name  string    `json:"name"`
	Quota quotaView `json:"quota"`
	Used  quotaView `json:"used"`
}

func newNamespaceView(n *pb.Namespace) namespaceView {
	view := func(q *pb.Quota) quotaView { return quotaView{q.GetJobs(), q.GetChains(), q.GetDraws(), q.GetBytes()} }
	return namespaceView{n.Name, view(n.Quota), view(n.Used)}
}

func (a *App) namespacesCommand() *cobra.Command {
	var r remote
	c := &cobra.Command{
		Use:   "namespaces",
		Short: "Make, list, bound and delete the namespaces of jobs and data",
		Long: `Make, list, bound and delete namespaces. Jobs and data are in one; who has no
token for it does not see them. A quota bounds what a namespace uses: jobs that
have not ended, their chains, the draws that all its jobs may keep (chains times
max_draws each), and the bytes of its data.`,
	}
	group(c)
	r.flags(c)
	c.AddCommand(a.namespacesList(&r),
		a.namespacesSet(&r, "create NAME", "Make a namespace", true),
		a.namespacesSet(&r, "set NAME", "Change a namespace's quota; bounds that are not given stay", false),
		&cobra.Command{
			Use:               "delete NAME",
			Short:             "Delete a namespace that has neither jobs nor data nor tokens",
			Args:              cobra.ExactArgs(1),
			ValidArgsFunction: a.completeNamespaces(&r),
			RunE: a.on(&r, func(ctx context.Context, s *session, args []string) error {
				err := s.DeleteNamespace(ctx, args[0])
				if err == nil {
					fmt.Fprintf(a.Stdout, "%s is deleted\n", args[0])
				}
				return err
			}),
		})
	return c
}

func (a *App) completeNamespaces(r *remote) cobra.CompletionFunc {
	return a.completion(r, func(ctx context.Context, s *session) ([]cobra.Completion, error) {
		all, err := s.Namespaces(ctx)
		var list []cobra.Completion
		for _, n := range all {
			list = append(list, n.Name)
		}
		return list, err
	})
}

func (a *App) namespacesSet(r *remote, use, short string, fresh bool) *cobra.Command {
	var q pb.Quota
	var asJSON bool
	c := &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1)}
	if !fresh {
		c.ValidArgsFunction = a.completeNamespaces(r)
	}
	f := c.Flags()
	bounds := []struct {
		name, usage string
		to          *int64
		of          func(*pb.Quota) int64
	}{
		{"max-jobs", "jobs that have not ended, at most; 0 for any number", &q.Jobs, (*pb.Quota).GetJobs},
		{"max-chains", "chains of jobs that have not ended, at most; 0 for any number", &q.Chains, (*pb.Quota).GetChains},
		{"max-draws", "draws that all jobs may keep, at most; 0 for any number", &q.Draws, (*pb.Quota).GetDraws},
		{"max-bytes", "`bytes` of data, at most; 0 for any number", &q.Bytes, (*pb.Quota).GetBytes},
	}
	for _, b := range bounds {
		f.Int64Var(b.to, b.name, 0, b.usage)
	}
	f.BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = a.on(r, func(ctx context.Context, s *session, args []string) error {
		if !fresh {
			all, err := s.Namespaces(ctx)
			if err != nil {
				return err
			}
			for _, n := range all {
				for _, b := range bounds {
					if n.Name == args[0] && !f.Changed(b.name) {
						*b.to = b.of(n.Quota)
					}
				}
			}
		}
		n, err := s.SetNamespace(ctx, args[0], &q, fresh)
		if err != nil {
			return err
		}
		return a.printNamespaces([]*pb.Namespace{n}, asJSON)
	})
	return c
}

func (a *App) namespacesList(r *remote) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List your namespaces, with what they use and may use",
		Args:  cobra.NoArgs,
		RunE: a.on(r, func(ctx context.Context, s *session, _ []string) error {
			all, err := s.Namespaces(ctx)
			if err != nil {
				return err
			}
			return a.printNamespaces(all, asJSON)
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (a *App) printNamespaces(all []*pb.Namespace, asJSON bool) error {
	views := []namespaceView{}
	var rows [][]string
	of := func(used, quota int64, text func(int64) string) string {
		if quota == 0 {
			return text(used)
		}
		return text(used) + "/" + text(quota)
	}
	count := func(n int64) string { return strconv.FormatInt(n, 10) }
	for _, n := range all {
		v := newNamespaceView(n)
		views = append(views, v)
		rows = append(rows, []string{v.Name, of(v.Used.Jobs, v.Quota.Jobs, count), of(v.Used.Chains, v.Quota.Chains, count),
			of(v.Used.Draws, v.Quota.Draws, count), of(v.Used.Bytes, v.Quota.Bytes, bytesText)})
	}
	if asJSON {
		return a.printJSON(views)
	}
	return a.table("NAME JOBS CHAINS DRAWS DATA", rows)
}

func (a *App) whoamiCommand() *cobra.Command {
	var r remote
	var asJSON bool
	c := &cobra.Command{
		Use:   "whoami",
		Short: "Tell whom the cluster takes you for",
		Args:  cobra.NoArgs,
		RunE: a.on(&r, func(ctx context.Context, s *session, _ []string) error {
			who, err := s.WhoAmI(ctx)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(map[string]any{"user": who.User, "role": who.Role, "namespaces": some(who.Namespaces), "token": who.Token, "expires": client.Moment(who.Expires)})
			}
			name := who.User
			if name == "" {
				name = "nobody in particular"
			}
			fmt.Fprintf(a.Stdout, "%s, %s of %s\n", name, who.Role, strings.Join(who.Namespaces, ", "))
			return nil
		}),
	}
	r.flags(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// keepContext returns the context that flags describe.
func keepContext(addresses []string, token, tokenFile, namespace string) (client.Context, error) {
	if tokenFile != "" {
		if token != "" {
			return client.Context{}, errors.New("--token and --token-file: give one of them")
		}
		var err error
		if token, err = client.ReadToken(tokenFile); err != nil {
			return client.Context{}, err
		}
	}
	return client.Context{Coordinators: addresses, Token: token, Namespace: namespace}, nil
}
