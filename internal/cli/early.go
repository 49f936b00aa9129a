package cli

import (
	"context"
	"sync"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/local"
	"github.com/ulisse-gp/ulisse/internal/report"
)

// early gives a provisional answer once the mode is known, while the chains warm
// up: the Laplace approximation at once, its correction when it is computed.
type early struct {
	job    *runJob
	dir    string
	once   sync.Once
	cancel context.CancelFunc
	work   sync.WaitGroup
}

// watch is told of every event, one call at a time.
func (e *early) watch(ctx context.Context, v local.View, p *progress) {
	if v.Run.Phase != chains.Warmup || v.Run.Plan.Method == "sgld" { // whose mode is that of a subset
		return
	}
	e.once.Do(func() {
		ctx, e.cancel = context.WithCancel(ctx)
		prep := v.Run.Prepared
		e.work.Go(func() { e.answer(ctx, prep, p) })
	})
}

func (e *early) answer(ctx context.Context, prep *chains.Prepared, p *progress) {
	j := e.job
	v, err := report.Laplace(j.problem, &j.data.Info, prep, j.spec.Seed)
	if err == nil {
		err = v.Write(e.dir)
	}
	if err == nil {
		p.Say("provisional", v.Line())
		if err = j.budget.Acquire(ctx); err == nil {
			v, err = report.Weighted(ctx, j.problem, &j.data.Info, prep, j.spec.Seed, j.budget)
			j.budget.Release()
			if v != nil {
				if err = v.Write(e.dir); err == nil {
					p.Say("provisional", v.Line())
				}
			}
		}
	}
	if err != nil && ctx.Err() == nil { // the chains do not need it
		p.Say("provisional", "no provisional answer: "+err.Error())
	}
}

// stop ends the work on it. e may be nil.
func (e *early) stop() {
	if e != nil && e.cancel != nil {
		e.cancel()
		e.work.Wait()
	}
}
