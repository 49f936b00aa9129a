package state

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/sampler"
)

// reportsOf brings a job with a specification to its warm-up, and returns what its first lane
// reports after that: so many checkpoints.
func reportsOf(t testing.TB, r *replica, spec string, n int, brief bool) (reports []*Report) {
	t.Helper()
	plan := testPlan()
	plan.Windows, plan.MaxDraws = []int{5}, 1<<20
	run := chains.New(*plan)
	do := func(c Command) {
		t.Helper()
		if _, err := r.apply(t, epoch, c); err != nil {
			t.Fatal(err)
		}
	}
	report := func(lane int, e chains.Event) *Report {
		t.Helper()
		if err := run.Apply(e); err != nil {
			t.Fatal(err)
		}
		return &Report{Job: "a", Chain: lane, Attempt: 1, Events: encoded(t, e), Brief: brief}
	}
	do(&Submit{ID: "a", Name: "n", Spec: spec, Chains: 2})
	do(&Place{Job: "a", Places: []Move{{Chain: 0, Worker: "w", Secret: "s"}, {Chain: 1, Worker: "w", Secret: "s"}, {Chain: 2, Worker: "w", Secret: "s"}}})
	do(&Loaded{Job: "a", Attempt: 1, Info: &dataset.Info{Rows: 10, SHA256: "x"}, Plan: plan, InstructionSet: "portable"})
	do(report(0, chains.Event{Prepared: prepared()}))
	for run.Phase != chains.Sampling {
		if run.AtBarrier() {
			e, err := sampler.Adapt(run)
			if err == nil {
				err = run.Apply(*e)
			}
			if err != nil {
				t.Fatal(err)
			}
			do(&Decide{Job: "a", Event: encoded(t, *e)[0]})
			continue
		}
		for lane := 1; lane <= 2; lane++ {
			if task, ok := run.Task(lane); ok {
				do(report(lane, chains.Event{Checkpoint: checkpoint(task)}))
			}
		}
	}
	for len(reports) < n {
		for lane := 1; lane <= 2; lane++ {
			task, ok := run.Task(lane)
			if !ok {
				t.Fatal("there is nothing to do")
			}
			reports = append(reports, report(lane, chains.Event{Checkpoint: checkpoint(task)}))
		}
	}
	return reports
}

// Where reports are brief every reader sees the same job as where they are not, but a checkpoint leaves
// the record as it was; once the job has ended nothing tells the two apart.
func TestBriefReports(t *testing.T) {
	brief, full := newReplica(t), newReplica(t)
	reports := reportsOf(t, brief, "spec", 6, true)
	reportsOf(t, full, "spec", 0, false)
	record := func(r *replica) string { return r.dump(t)[fmt.Sprintf("jobs/%x", "a")] }
	seen := func(r *replica) (out []*Job) {
		t.Helper()
		err := r.db.View(func(tx *bbolt.Tx) error {
			j, err := GetJob(tx, "a")
			if err != nil {
				return err
			}
			out = append(out, j)
			return Jobs(tx, func(j *Job) bool { out = append(out, j); return true })
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	same := func(what string) {
		t.Helper()
		a, b := seen(brief), seen(full)
		for i := range a {
			a[i].brief = false
			if diff := cmp.Diff(b[i], a[i], cmp.AllowUnexported(Job{})); diff != "" {
				t.Errorf("%s: without (-) and with (+) brief reports\n%s", what, diff)
			}
		}
	}
	same("at first")
	before := record(brief)
	do := func(what string, c Command, other Command) {
		t.Helper()
		for r, c := range map[*replica]Command{brief: c, full: other} {
			if _, err := r.apply(t, epoch.Add(time.Second), c); err != nil {
				t.Fatal(what, err)
			}
		}
		same(what)
	}
	for _, c := range reports {
		plain := *c
		plain.Brief = false
		do("a checkpoint", c, &plain)
	}
	if after := record(brief); after != before || record(full) == before {
		t.Errorf("after checkpoints the record is %s, it was %s", after, before)
	}
	for what, c := range map[string]Command{"a tick": &Tick{Jobs: []string{"a"}}, "a remark": &Remark{Job: "a", Kind: NoteWrong, Text: "x", Shown: true},
		"another place": &Place{Job: "a", Places: []Move{{Chain: 2, Worker: "v", Secret: "t"}}}} {
		do(what, c, c)
	}
	do("its end", &Fail{Job: "a", Message: "it is over"}, &Fail{Job: "a", Message: "it is over"})
	if diff := cmp.Diff(full.dump(t), brief.dump(t)); diff != "" {
		t.Error("after the end", diff)
	}
	do("going on", &Act{Job: "a", Action: Resume}, &Act{Job: "a", Action: Resume})
}

// BenchmarkCheckpoint tells what a checkpoint of a job costs the file of the state, in bytes of pages, and
// in the log. The specification has 2 KB, and there are 50 other jobs.
func BenchmarkCheckpoint(b *testing.B) {
	for _, brief := range []bool{false, true} {
		b.Run(fmt.Sprintf("brief=%v", brief), func(b *testing.B) {
			db, err := bbolt.Open(filepath.Join(b.TempDir(), "db"), 0o600, &bbolt.Options{NoFreelistSync: true, NoSync: true})
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			r := &replica{db: db, m: NewMachine()}
			r.clear(b)
			spec := strings.Repeat("a line of a specification\n", 80)
			for i := range 50 {
				if _, err := r.apply(b, epoch, &Submit{ID: fmt.Sprint("other", i), Spec: spec, Chains: 2}); err != nil {
					b.Fatal(err)
				}
			}
			reports := reportsOf(b, r, spec, b.N, brief)[:b.N]
			var log int
			var texts [][]byte
			for i, c := range reports {
				text, err := Encode(epoch.Add(time.Duration(i)*time.Second), c)
				if err != nil {
					b.Fatal(err)
				}
				texts, log = append(texts, text), log+len(text)
			}
			before := db.Stats()
			b.ResetTimer()
			for _, text := range texts {
				if _, err := r.applyText(text); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			after := db.Stats()
			pages := after.TxStats.GetPageAlloc() - before.TxStats.GetPageAlloc()
			b.ReportMetric(float64(pages)/float64(b.N), "state-B/op")
			b.ReportMetric(float64(log)/float64(b.N), "log-B/op")
		})
	}
}
