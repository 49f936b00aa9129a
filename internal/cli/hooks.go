package cli

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"

	"github.com/spf13/cobra"

	"github.com/ulisse-gp/ulisse/internal/hooks"
	"github.com/ulisse-gp/ulisse/internal/job"
)

// hookFlags say who is told what happens to jobs.
type hookFlags struct {
	hooks.Config
	secret   string // file
	networks []string
}

func (h *hookFlags) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&h.Command, "hook-command", "", "run this `command` when a job converges, fails, stalls, …; the event is on its standard input, as JSON")
	f.StringSliceVar(&h.Webhooks, "webhook", nil, "post such events to these `URLs`")
	f.StringSliceVar(&h.Hosts, "webhook-hosts", nil, "`hosts` of which specifications may name webhooks: host, host:port or *.domain")
	f.StringSliceVar(&h.networks, "webhook-networks", nil, "`networks`, beside public ones, where webhooks of specifications may lead, as 10.1.0.0/16")
	f.StringVar(&h.secret, "webhook-secret-file", "", "sign what is posted with the secret in this `file`")
}

// hooks returns what the flags say, nil if that is nobody.
func (h *hookFlags) hooks() (*hooks.Hooks, error) {
	if h.Command == "" && len(h.Webhooks)+len(h.Hosts) == 0 {
		return nil, nil
	}
	for _, text := range h.networks {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, badInput(fmt.Errorf("--webhook-networks: %q is not a network like 10.1.0.0/16", text))
		}
		h.Networks = append(h.Networks, p.Masked())
	}
	if h.secret != "" {
		text, err := os.ReadFile(h.secret)
		if err != nil {
			return nil, badInput(fmt.Errorf("--webhook-secret-file: %w", err))
		}
		if h.Secret = bytes.TrimSpace(text); len(h.Secret) == 0 {
			return nil, badInput(fmt.Errorf("--webhook-secret-file: %s is empty", h.secret))
		}
	}
	out, err := hooks.New(h.Config)
	if err != nil {
		return nil, badInput(fmt.Errorf("--webhook, --webhook-hosts: %w", err))
	}
	return out, nil
}

// allowed says which webhook of a specification is not allowed here.
func allowed(h *hooks.Hooks, s *job.Spec) error {
	if s.Notify == nil {
		return nil
	}
	for i, u := range s.Notify.Webhooks {
		if err := h.Allowed(u); err != nil {
			return badInput(fmt.Errorf("notify.webhooks[%d]: %w", i, err))
		}
	}
	return nil
}
