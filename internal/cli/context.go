package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/tlsconf"
)

// contextView is a context as --json prints it.
type contextView struct {
	Name         string   `json:"name"`
	Current      bool     `json:"current"`
	Coordinators []string `json:"coordinators"`
}

func loadContexts() (*client.Contexts, error) {
	path, err := client.ContextsPath()
	if err != nil {
		return nil, err
	}
	f, err := client.LoadContexts(path)
	return f, badInput(err)
}

// completeContexts completes the names of contexts.
func completeContexts(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	f, err := loadContexts()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return f.Names(), cobra.ShellCompDirectiveNoFileComp
}

func (a *App) contextCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "context",
		Short: "Keep the addresses of clusters under names",
		Long: `Keep the addresses of clusters under names, in $ULISSE_CONFIG or
ulisse/config.yaml in your folder of configurations, with the certificates and
the token that they want.

A command talks to the cluster of --coordinators or --context; else of
$ULISSE_COORDINATORS or $ULISSE_CONTEXT; else of the current context; else to
` + client.DefaultAddress + `. $ULISSE_TOKEN and $ULISSE_TLS_... go before what a
context holds, and flags before both.`,
		Example: `  ulisse context add lab 10.0.0.1:7000,10.0.0.2:7000,10.0.0.3:7000
  ulisse context add far 10.1.0.1 --tls-ca ca.crt --tls-cert ada.crt --tls-key ada.key
  ulisse context use lab`,
	}
	group(c)
	c.AddCommand(a.contextList(), a.contextShow(), a.contextAdd(),
		&cobra.Command{
			Use:               "use NAME",
			Short:             "Make a context the current one",
			Args:              cobra.ExactArgs(1),
			ValidArgsFunction: completeContexts,
			RunE: func(_ *cobra.Command, args []string) error {
				return a.changeContexts(func(f *client.Contexts) error {
					_, err := f.Get(args[0])
					f.Current = args[0]
					return err
				}, fmt.Sprintf("%s is the current context", args[0]))
			},
		},
		&cobra.Command{
			Use:               "remove NAME",
			Short:             "Forget a context",
			Args:              cobra.ExactArgs(1),
			ValidArgsFunction: completeContexts,
			RunE: func(_ *cobra.Command, args []string) error {
				return a.changeContexts(func(f *client.Contexts) error {
					if _, ok := f.Contexts[args[0]]; !ok {
						_, err := f.Get(args[0])
						return err
					}
					if delete(f.Contexts, args[0]); f.Current == args[0] {
						f.Current = ""
					}
					return nil
				}, fmt.Sprintf("%s is forgotten", args[0]))
			},
		})
	return c
}

// changeContexts changes the file of contexts and says so.
func (a *App) changeContexts(change func(*client.Contexts) error, done string) error {
	f, err := loadContexts()
	if err != nil {
		return err
	}
	if err := change(f); err != nil {
		return badInput(err)
	}
	if err := f.Save(); err != nil {
		return fmt.Errorf("cannot write the contexts: %w", err)
	}
	fmt.Fprintln(a.Stdout, done)
	return nil
}

func (a *App) contextList() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List contexts; * is the current one",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			f, err := loadContexts()
			if err != nil {
				return err
			}
			views := []contextView{}
			var rows [][]string
			for _, name := range f.Names() {
				v := contextView{name, name == f.Current, some(f.Contexts[name].Coordinators)}
				mark := ""
				if v.Current {
					mark = "*"
				}
				views, rows = append(views, v), append(rows, []string{name, mark, strings.Join(v.Coordinators, ",")})
			}
			if asJSON {
				return a.printJSON(views)
			}
			return a.table("NAME CURRENT COORDINATORS", rows)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// clusterView is how to reach a cluster, as context show prints it.
type clusterView struct {
	Coordinators []string `json:"coordinators"`
	Namespace    string   `json:"namespace"`
	Token        string   `json:"token"`
	CA           string   `json:"tls_ca"`
	Cert         string   `json:"tls_cert"`
	Key          string   `json:"tls_key"`
}

func (a *App) contextShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show [NAME]",
		Short: "Print how a cluster is reached, its token too, as JSON",
		Long: `Print how a cluster is reached, as JSON: that of a context, or the one that
commands talk to. The token is printed too. This is for programs that speak to the
cluster themselves, such as the packages for Python and R.`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeContexts,
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, err := client.Resolve(nil, strings.Join(args, ""))
			if err != nil {
				return badInput(err)
			}
			return a.printJSON(clusterView{some(cfg.Addresses), cfg.Namespace, cfg.Token, cfg.TLS.CA, cfg.TLS.Cert, cfg.TLS.Key})
		},
	}
}

func (a *App) contextAdd() *cobra.Command {
	var token, tokenFile, namespace string
	var files tlsconf.Files
	c := &cobra.Command{
		Use:   "add NAME HOST:PORT[,HOST:PORT…]",
		Short: "Keep the addresses of a cluster's coordinators; the first context becomes the current one",
		Args:  cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			return a.changeContexts(func(f *client.Contexts) error {
				files, err := absolute(orEnv(files))
				if err != nil {
					return err
				}
				kept, err := keepContext(strings.Split(args[1], ","), token, tokenFile, namespace)
				if err != nil {
					return err
				}
				cfg := client.Config{Addresses: kept.Coordinators, Token: kept.Token, Namespace: namespace, TLS: files}
				cl, err := client.Dial(cfg) // it connects at the first call
				if err != nil {
					return err
				}
				cl.Close()
				if args[0] == "" {
					return errors.New("the context's name is empty")
				}
				kept.Coordinators, kept.TLS = cl.Addresses(), files
				f.Contexts[args[0]] = kept
				if len(f.Contexts) == 1 {
					f.Current = args[0]
				}
				return nil
			}, fmt.Sprintf("%s is kept", args[0]))
		},
	}
	tlsFlags(c, c.Flags(), &files)
	c.Flags().StringVar(&token, "token", "", "`secret` that the cluster asks for (kept in the file)")
	c.Flags().StringVar(&tokenFile, "token-file", "", "`file` with the token (it is kept in the file of contexts)")
	c.Flags().StringVar(&namespace, "namespace", "", "`name` of the namespace to work in")
	return c
}
