package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/tlsconf"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// remote says which cluster a command talks to.
type remote struct {
	coordinators []string
	context      string
	token        string
	tokenFile    string
	namespace    string
	timeout      time.Duration
	tls          tlsconf.Files
}

// flags adds the flags that choose a cluster.
func (r *remote) flags(c *cobra.Command) {
	f := c.PersistentFlags()
	f.StringSliceVar(&r.coordinators, "coordinators", nil, "talk to the cluster of these coordinators, `host:port`,... ($"+client.EnvCoordinators+")")
	f.StringVar(&r.context, "context", "", "talk to the cluster of this context (`name`, $"+client.EnvContext+")")
	f.StringVar(&r.token, "token", "", "show this `token` ($"+client.EnvToken+"; others on this machine see the command line)")
	f.StringVar(&r.tokenFile, "token-file", "", "show the token in this `file`")
	f.StringVar(&r.namespace, "namespace", "", "work in this namespace (`name`, $"+client.EnvNamespace+")")
	f.DurationVar(&r.timeout, "timeout", 10*time.Second, "give up after this time without an answer")
	tlsFlags(c, f, &r.tls)
	c.RegisterFlagCompletionFunc("context", completeContexts)
	c.RegisterFlagCompletionFunc("coordinators", cobra.NoFileCompletions)
}

// resolve returns how to reach the cluster that the command line, the
// environment and the file of contexts name.
func (r *remote) resolve() (client.Config, error) {
	cfg, err := client.Resolve(r.coordinators, r.context)
	if r.tls.Set() {
		cfg.TLS = orEnv(r.tls)
	}
	switch {
	case err != nil:
		return cfg, err
	case r.token != "" && r.tokenFile != "":
		return cfg, errors.New("--token and --token-file: give one of them")
	case r.tokenFile != "":
		cfg.Token, err = client.ReadToken(r.tokenFile)
	}
	cfg.Token, cfg.Namespace = cmp.Or(r.token, cfg.Token), cmp.Or(r.namespace, cfg.Namespace)
	return cfg, err
}

// session is a cluster that a command talks to.
type session struct {
	*client.Client
	*trouble
}

// dial connects to the cluster.
func (r *remote) dial(a *App) (*session, error) {
	if r.timeout <= 0 {
		return nil, badInput(fmt.Errorf("--timeout %v: give a positive time", r.timeout))
	}
	cfg, err := r.resolve()
	if err != nil {
		return nil, badInput(err)
	}
	t := &trouble{now: a.Now, tell: func(msg string) { fmt.Fprintln(a.Stderr, "ulisse:", msg) }}
	cfg.Patience, cfg.OnRetry = r.timeout, t.retry
	cl, err := client.Dial(cfg)
	if err != nil {
		return nil, badInput(err)
	}
	return &session{cl, t}, nil
}

// trouble tells a user who waits that the cluster does not answer: after a
// while, and then now and again.
type trouble struct {
	now  func() time.Time
	mu   sync.Mutex
	tell func(string)

	first, last, told time.Time
}

const (
	troubleAfter = 2 * time.Second
	troubleEvery = 30 * time.Second
)

func (t *trouble) retry(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if now.Sub(t.last) > 2*troubleAfter { // it has answered in between
		t.first = now
	}
	if t.last = now; now.Sub(t.first) >= troubleAfter && now.Sub(t.told) >= troubleEvery {
		t.told = now
		t.tell(err.Error() + ": trying on")
	}
}

// divert lets somebody else tell, until the function returned is called.
func (t *trouble) divert(tell func(string)) (back func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.tell
	t.tell = tell
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.tell = before
	}
}

// on makes the body of a command that talks to a cluster.
func (a *App) on(r *remote, f func(ctx context.Context, s *session, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		s, err := r.dial(a)
		if err != nil {
			return err
		}
		defer s.Close()
		err = f(c.Context(), s, args)
		if client.Interrupted(err) && c.Context().Err() != nil {
			return &exit{ExitInterrupted, errors.New("interrupted")}
		}
		return err
	}
}

// find returns the job that an argument means.
func (a *App) find(ctx context.Context, s *session, arg string) (*pb.Job, error) {
	j, others, err := s.Find(ctx, arg)
	if others > 0 {
		fmt.Fprintf(a.Stderr, "%d jobs are called %s: this is the newest, %s\n", others+1, arg, j.Id)
	}
	return j, err
}

// printJSON prints a value as JSON for people and programs.
func (a *App) printJSON(v any) error {
	enc := json.NewEncoder(a.Stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// table prints rows under a header. A field's empty text is shown as a dash.
func (a *App) table(header string, rows [][]string) error {
	tw := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, strings.ReplaceAll(header, " ", "\t"))
	for _, r := range rows {
		for i, f := range r {
			if f == "" {
				r[i] = "-"
			}
		}
		fmt.Fprintln(tw, strings.Join(r, "\t"))
	}
	return tw.Flush()
}

// completion makes a function that completes a command's only argument from
// what the cluster knows. It is silent about failures and quick to give up.
func (a *App) completion(r *remote, words func(ctx context.Context, s *session) ([]cobra.Completion, error)) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(c.Context(), 2*time.Second)
		defer cancel()
		s, err := r.dial(a)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer s.Close()
		list, err := words(ctx, s)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return list, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeJobs completes ids and names of jobs.
func (a *App) completeJobs(r *remote) cobra.CompletionFunc {
	return a.completion(r, func(ctx context.Context, s *session) ([]cobra.Completion, error) {
		jobs, err := s.Jobs(ctx, &pb.ListJobsRequest{Stale: true})
		var list []cobra.Completion
		seen := map[string]bool{}
		for _, j := range jobs {
			list = append(list, cobra.CompletionWithDesc(j.Id, j.Name+", "+client.StateWord(j.State)))
			if !seen[j.Name] {
				seen[j.Name] = true
				list = append(list, cobra.CompletionWithDesc(j.Name, client.StateWord(j.State)))
			}
		}
		return list, err
	})
}
