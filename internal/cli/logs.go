package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/ulisse-gp/ulisse/internal/client"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// logFlags say what of a job's log is printed.
type logFlags struct {
	follow, json, gradients bool
	tail, chain             int32
}

func (a *App) logsCommand() *cobra.Command {
	var r remote
	var l logFlags
	c := &cobra.Command{
		Use:   "logs JOB",
		Short: "Print what happened to a job",
		Long: `Print what happened to a job, oldest first: its states, where its chains were
placed, how they were tuned, what was wrong, and why it failed.

With --gradients it prints instead what every gradient cost and gave, a line of
JSON for each: thousands of lines.`,
		Example: `  ulisse logs concrete
  ulisse logs concrete --follow
  ulisse logs concrete --gradients --chain 2 --tail 10`,
		Args: cobra.ExactArgs(1),
		RunE: a.on(&r, func(ctx context.Context, s *session, args []string) error {
			if l.tail < 0 || l.chain < 0 {
				return badInput(errors.New("--tail and --chain: give positive numbers"))
			}
			if l.chain > 0 && !l.gradients {
				return badInput(errors.New("--chain is of gradients: give --gradients too"))
			}
			j, err := a.find(ctx, s, args[0])
			if err != nil {
				return err
			}
			if l.gradients {
				return a.printGradients(ctx, s, j.Id, &l)
			}
			return a.printEvents(ctx, s, j.Id, &l)
		}),
	}
	r.flags(c)
	f := c.Flags()
	f.BoolVarP(&l.follow, "follow", "f", false, "go on until the job has ended")
	f.BoolVar(&l.gradients, "gradients", false, "print what every gradient cost and gave")
	f.Int32Var(&l.tail, "tail", 0, "only the last `lines` (default: all that are kept)")
	f.Int32Var(&l.chain, "chain", 0, "only the gradients of this `chain` (default: all)")
	f.BoolVar(&l.json, "json", false, "print a JSON object a line")
	c.ValidArgsFunction = a.completeJobs(&r)
	return c
}

// eventsEvery is how often it is looked for events of a job that is followed.
const eventsEvery = time.Second

// printEvents prints what happened to a job; with follow until it has ended.
func (a *App) printEvents(ctx context.Context, s *session, id string, l *logFlags) error {
	var last *pb.JobNote // of those that were printed
	for {
		j, err := s.Get(ctx, id) // before its events: those of its end are among them then
		if err != nil {
			return err
		}
		events, err := s.Events(ctx, id)
		if err != nil {
			return err
		}
		if last != nil {
			events = eventsAfter(events, last)
		} else if l.tail > 0 {
			events = events[max(0, len(events)-int(l.tail)):]
		}
		for _, e := range events {
			if err := a.printEvent(e, j, l.json); err != nil {
				return err
			}
			last = e
		}
		if !l.follow || client.Ended(j.State) {
			return nil
		}
		select {
		case <-time.After(eventsEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// eventsAfter returns the events that came after one of them; all if that is not kept any more.
func eventsAfter(events []*pb.JobNote, last *pb.JobNote) []*pb.JobNote {
	for i, e := range slices.Backward(events) {
		if proto.Equal(e, last) {
			return events[i+1:]
		}
	}
	return events
}

// printEvent prints an event of a job. That of a failure has the whole message, of which a note
// keeps the beginning.
func (a *App) printEvent(e *pb.JobNote, j *pb.Job, asJSON bool) error {
	v := eventView{client.Moment(e.Time), e.Kind, e.Text}
	if failed := "failed: "; e.Kind == "state" && j.State == pb.JobState_JOB_STATE_FAILED && strings.HasPrefix(e.Text, failed) && strings.HasPrefix(j.Message, e.Text[len(failed):]) {
		v.Text = failed + j.Message
	}
	if asJSON {
		return json.NewEncoder(a.Stdout).Encode(v)
	}
	_, err := fmt.Fprintf(a.Stdout, "%s  %-9s  %s\n", e.Time.AsTime().Local().Format(time.DateTime), v.Kind, v.Text)
	return err
}

// eventView is an event as --json prints it.
type eventView struct {
	Time *time.Time `json:"time"`
	Kind string     `json:"kind"` // submitted, state, placed, tuned, extended, health
	Text string     `json:"text"`
}

// printGradients prints the lines that the chains of a job report.
func (a *App) printGradients(ctx context.Context, s *session, id string, l *logFlags) error {
	enc := json.NewEncoder(a.Stdout)
	return s.Logs(ctx, &pb.LogsRequest{Id: id, Chain: l.chain, Follow: l.follow, Tail: l.tail}, func(line *pb.LogLine) error {
		if l.json {
			return enc.Encode(newLogView(line))
		}
		who := "preparation"
		if line.Chain > 0 {
			who = fmt.Sprintf("chain %d", line.Chain)
		}
		_, err := fmt.Fprintf(a.Stdout, "%s  %s  %s  %s\n", line.Time.AsTime().Local().Format("15:04:05.000"), who, line.Worker, line.Text)
		return err
	})
}

// logView is a line of a chain as --json prints it.
type logView struct {
	Time   *time.Time `json:"time"`
	Chain  int32      `json:"chain"`
	Worker string     `json:"worker"`
	Text   string     `json:"text"`
}

func newLogView(l *pb.LogLine) logView {
	return logView{client.Moment(l.Time), l.Chain, l.Worker, l.Text}
}
