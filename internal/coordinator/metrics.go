package coordinator

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/bbolt"

	"github.com/ulisse-gp/ulisse/internal/monitor"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// What the leader measures of the cluster. Other coordinators export none of
// it, so that sums over all of them are right.
var (
	jobsFamily      = monitor.Gauge("jobs", "Jobs by state.", "state")
	chainsFamily    = monitor.Gauge("chains", "Chains of jobs that are not paused and have not ended, by whether a worker drives them.", "state")
	workersFamily   = monitor.Gauge("workers", "Workers by state. Lost are those that vanished without taking leave, for a day; aside those that compute other numbers than others do.", "state")
	coresFamily     = monitor.Gauge("workers_cores", "Cores of the connected workers.")
	wantedFamily    = monitor.Gauge("workers_wanted", "Workers that the running and queued jobs could use.")
	unhealthyFamily = monitor.Gauge("jobs_unhealthy", "Jobs that are stalled or diverging.", "status")
	dataFamily      = monitor.Gauge("data_sets", "Data sets that are recorded.")
	dataSize        = monitor.Gauge("data_sets_size_bytes", "Size of the recorded data sets.")

	noticeFamily = monitor.Gauge("notices_pending", "Notices of events that hooks have not been told of yet.")
	sentFamily   = monitor.Counter("notices_total", "Attempts to tell a hook of an event, by what became of them; and notices that were given up.", "result")

	roundFamily  = monitor.Gauge("leader_round_age_seconds", "Time since the leader last went through all jobs.")
	errorsFamily = monitor.Counter("leader_job_errors_total", "Times that the leader could decide nothing about a job.")
	wrongFamily  = monitor.Counter("worker_disagreements_total", "Times that two workers were found not to compute the same bits.")
	checksFamily = monitor.Counter("checkpoints_checked_total", "Reports of drivers (checkpoints above all) that another worker computed again, by whether it came to the same, to something else, or could not say (none).", "result")

	clusterFamilies = []monitor.Family{jobsFamily, chainsFamily, workersFamily, coresFamily, wantedFamily, unhealthyFamily, dataFamily, dataSize, noticeFamily, sentFamily, roundFamily, errorsFamily, wrongFamily, checksFamily}
)

// What the leader measures of each job that is at work, while it is.
var (
	jobDraws     = monitor.Gauge("job_draws", "Draws that every chain of a job at work has.", "id", "name")
	jobWanted    = monitor.Gauge("job_draws_wanted", "Draws of each chain that the job asks for.", "id", "name")
	jobRHat      = monitor.Gauge("job_rhat", "Largest R-hat over the job's parameters; none before there is one.", "id", "name")
	jobESS       = monitor.Gauge("job_ess", "Smallest effective sample size over the job's parameters, bulk or tail.", "id", "name")
	jobError     = monitor.Gauge("job_largest_error", "Largest standard error of a parameter's mean, in posterior standard deviations, or of its standard deviation, relative.", "id", "name")
	jobPace      = monitor.Gauge("job_ess_per_second", "Effective draws for each second that the job was at work.", "id", "name")
	jobActive    = monitor.Gauge("job_active_seconds", "Time that the job has been at work.", "id", "name")
	jobLimit     = monitor.Gauge("job_rhat_limit", "R-hat at which the job counts as converged.", "id", "name")
	jobGradients = monitor.Counter("job_gradients_total", "Gradients of the job, as its checkpoints say.", "id", "name")
	jobProducts  = monitor.Counter("job_products_total", "Products of K with a block of vectors.", "id", "name")
	jobPairs     = monitor.Counter("job_pairs_total", "Elements of K that the job's products ranged over.", "id", "name")
	jobHealth    = monitor.Gauge("job_unhealthy", "1 for a job at work that is stalled or diverging, as the label status says; else there is none.", "id", "name", "status")
	jobFailures  = monitor.Counter("job_solves_unconverged_total", "Right-hand sides whose solve stopped before its tolerance.", "id", "name")

	jobFamilies = []monitor.Family{jobDraws, jobWanted, jobRHat, jobESS, jobError, jobPace, jobActive, jobLimit, jobGradients, jobProducts, jobPairs, jobFailures, jobHealth}
)

// maxJobSeries bounds the jobs with metrics of their own: the ones that began
// last.
const maxJobSeries = 100

// collectTime bounds what a scrape may take here.
const collectTime = 5 * time.Second

// Describe implements prometheus.Collector.
func (c *Coordinator) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range slices.Concat(clusterFamilies, jobFamilies) {
		ch <- f.Desc()
	}
}

// Collect implements prometheus.Collector: what the leader knows of jobs and
// workers.
func (c *Coordinator) Collect(ch chan<- prometheus.Metric) {
	if !c.node.IsLeader() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), collectTime)
	defer cancel()
	c.collectWorkers(ch)
	ch <- roundFamily.At(time.Since(time.Unix(0, c.lastRound.Load())).Seconds())
	ch <- errorsFamily.At(float64(c.jobErrors.Load()))
	for result, n := range c.workers.checkCounts() {
		ch <- checksFamily.At(float64(n), result)
	}
	ch <- wrongFamily.At(float64(c.disagreed.Load()))
	if n, err := c.WorkersWanted(ctx); err == nil {
		ch <- wantedFamily.At(float64(n))
	}
	phases := map[state.Phase]int{}
	var active []string
	sets, size := 0, int64(0)
	var notices []*state.Notice
	err := c.node.View(func(tx *bbolt.Tx) error {
		active = state.Active(tx)
		if err := state.CountPhases(tx, phases); err != nil {
			return err
		}
		var err error
		if notices, err = state.Notices(tx); err != nil {
			return err
		}
		return state.Blobs(tx, func(b *state.Blob) bool { sets, size = sets+1, size+b.Size; return true })
	})
	if err != nil {
		return
	}
	for p := range jobStates {
		ch <- jobsFamily.At(float64(phases[p]), string(p))
	}
	ch <- noticeFamily.At(float64(len(notices)))
	counts := c.notifier.Counts()
	ch <- sentFamily.At(float64(counts.Sent), "sent")
	ch <- sentFamily.At(float64(counts.Failed), "failed")
	ch <- sentFamily.At(float64(counts.GivenUp), "given_up")
	ch <- dataFamily.At(float64(sets))
	ch <- dataSize.At(float64(size))
	c.collectJobs(ch, active)
}

func (c *Coordinator) collectWorkers(ch chan<- prometheus.Metric) {
	counts, cores := c.workers.count()
	for s, n := range counts {
		ch <- workersFamily.At(float64(n), s)
	}
	ch <- coresFamily.At(float64(cores))
}

// jobSample is what is measured of a job.
type jobSample struct {
	id, name string
	started  time.Time
	values   []prometheus.Metric
}

func (c *Coordinator) collectJobs(ch chan<- prometheus.Metric, active []string) {
	now := time.Now()
	driven, waiting := 0, 0
	unhealthy := map[state.Status]int{}
	var samples []jobSample
	for _, id := range active {
		_ = c.jobs.with(id, func(f *followed) error { // one that is gone has no metrics
			if f.Job.Phase == state.Paused || f.Job.Phase.Ended() {
				return nil
			}
			if f.Job.Health != nil {
				unhealthy[f.Job.Health.Status]++
			}
			for _, k := range lanes(&f.Follower) {
				if f.Job.Placements[k].Worker != "" {
					driven++
				} else {
					waiting++
				}
			}
			if f.Job.Phase.AtWork() {
				samples = append(samples, sampleOf(&f.Follower, now))
			}
			return nil
		})
	}
	for _, s := range []state.Status{state.Stalled, state.Diverging} {
		ch <- unhealthyFamily.At(float64(unhealthy[s]), string(s))
	}
	ch <- chainsFamily.At(float64(driven), "driven")
	ch <- chainsFamily.At(float64(waiting), "waiting")
	slices.SortFunc(samples, func(a, b jobSample) int { return cmp.Or(b.started.Compare(a.started), cmp.Compare(a.id, b.id)) })
	for _, s := range samples[:min(len(samples), maxJobSeries)] {
		for _, m := range s.values {
			ch <- m
		}
	}
}

// sampleOf measures a job.
func sampleOf(f *state.Follower, now time.Time) jobSample {
	j := f.Job
	s := jobSample{id: j.ID, name: j.Name, started: j.Started}
	at := func(m monitor.Family, x float64) { s.values = append(s.values, m.At(x, j.ID, j.Name)) }
	elapsed := j.Elapsed(now).Seconds()
	at(jobActive, elapsed)
	if h := j.Health; h != nil {
		s.values = append(s.values, jobHealth.At(1, j.ID, j.Name, string(h.Status)))
	}
	r := f.Run
	if r == nil {
		return s
	}
	cost := r.Cost()
	at(jobDraws, float64(r.MinDraws()))
	at(jobWanted, float64(r.Plan.Draws))
	at(jobLimit, r.Plan.RHat)
	at(jobGradients, float64(cost.Gradients))
	at(jobProducts, float64(cost.Products))
	at(jobPairs, cost.Pairs)
	at(jobFailures, float64(cost.Unconverged))
	if v := f.Convergence; v.Draws > 0 && finite(v.RHat) > 0 && finite(v.ESS) > 0 {
		at(jobRHat, v.RHat)
		at(jobESS, v.ESS)
		if e := finite(v.Error); e > 0 {
			at(jobError, e)
		}
		if elapsed > 0 {
			at(jobPace, v.ESS/elapsed)
		}
	}
	return s
}
