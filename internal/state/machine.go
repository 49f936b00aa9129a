package state

import (
	"fmt"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/ulisse-gp/ulisse/internal/chains"
)

// Machine applies commands. It keeps the runs of jobs at work in memory, as a
// cache of what their events say.
type Machine struct {
	mu   sync.Mutex // guards runs, and what is in them
	runs map[string]*cachedRun
}

// cachedRun is a run after the first events of a job. They may be those of a
// transaction that is not committed yet, or is rolled back after all.
type cachedRun struct {
	db     *bbolt.DB // that has the events; a restore brings another
	run    *chains.Run
	events uint64
}

// NewMachine returns a machine.
func NewMachine() *Machine { return &Machine{runs: map[string]*cachedRun{}} }

// Init creates the buckets that are missing. It runs before the first command
// and after a restore.
func (m *Machine) Init(tx *bbolt.Tx) error {
	m.mu.Lock()
	clear(m.runs)
	m.mu.Unlock()
	counted := tx.Bucket(usageBucket) != nil
	for _, b := range buckets {
		if _, err := tx.CreateBucketIfNotExists(b); err != nil {
			return err
		}
	}
	if err := initIndex(tx); err != nil {
		return err
	}
	if err := initUses(tx); err != nil || counted {
		return err
	}
	return initUsage(tx)
}

// Apply applies a command in a transaction and returns the *Job that it made or
// changed (nil where there is none), or an error. After an error the
// transaction must not be committed.
func (m *Machine) Apply(tx *bbolt.Tx, index uint64, command []byte) any {
	t, c, err := decode(command)
	if err != nil {
		return err
	}
	j, err := c.apply(&transaction{Tx: tx, machine: m, index: index, time: t})
	if err != nil {
		return err
	}
	return j
}

// Snapshot returns a job's run as of the transaction that the job was read in,
// nil if the machine does not have it. The run is the caller's to change.
//
// The count of events tells which run that is: whoever reads sees committed
// transactions only, and a run that a rolled back one left here is replaced
// before as many events are committed (see run).
func (m *Machine) Snapshot(tx *bbolt.Tx, j *Job) *chains.Run {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.runs[j.ID]; c != nil && c.db == tx.DB() && c.events == j.Events {
		return c.run.Snapshot()
	}
	return nil
}

// run returns the run of a job that has a plan. A run that is not that of the
// transaction is rebuilt.
func (m *Machine) run(tx *bbolt.Tx, j *Job) (*cachedRun, error) {
	m.mu.Lock()
	c := m.runs[j.ID]
	m.mu.Unlock()
	if c != nil && c.db == tx.DB() && c.events == j.Events {
		return c, nil
	}
	c = &cachedRun{db: tx.DB(), run: chains.New(*j.Plan)}
	var err error
	if c.events, err = replay(tx, j.ID, 0, c.run); err != nil {
		return nil, err
	}
	if c.events != j.Events {
		return nil, fmt.Errorf("%w: %s has %d of them, not %d", ErrDamaged, j.ID, c.events, j.Events)
	}
	m.mu.Lock()
	m.runs[j.ID] = c
	m.mu.Unlock()
	return c, nil
}

// forget drops a job's run.
func (m *Machine) forget(job string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.runs, job)
}

// transaction is what a command is applied in.
type transaction struct {
	*bbolt.Tx
	machine *Machine
	index   uint64
	time    time.Time // that the command carries
}

// jobUpdate is the change of a job by a command.
type jobUpdate struct {
	*transaction
	job    *Job
	cached *cachedRun // nil until somebody asks for the run
	notes  []Note
}

// update changes a job by f, keeps it, and keeps a note and a notice of what
// happened to it.
func (x *transaction) update(id string, f func(*jobUpdate) error) (*Job, error) {
	j, err := GetJob(x.Tx, id)
	if err != nil {
		return nil, err
	}
	before := *j
	u := &jobUpdate{transaction: x, job: j}
	if err = f(u); err == nil {
		err = u.keep(&before)
	}
	if c := u.cached; j.Phase.Ended() || err != nil && c != nil && c.events != before.Events { // it is ahead of what is kept
		x.machine.forget(id)
	}
	if err != nil {
		return nil, err
	}
	return j, nil
}

// keep writes the job, which was as before says.
func (u *jobUpdate) keep(before *Job) error {
	j := u.job
	j.Version = u.index
	if kind := noticeOf(before, j, u.time); kind != "" {
		if err := addNotice(u.Tx, u.index, kind, j, u.time); err != nil {
			return err
		}
	}
	u.noteChange(before)
	if err := addNotes(u.Tx, j.ID, u.notes); err != nil {
		return err
	}
	return putJob(u.Tx, j)
}

// run returns the job's run, or ErrPhase if it has none yet.
func (u *jobUpdate) run() (*chains.Run, error) {
	if u.job.Plan == nil {
		return nil, ErrPhase
	}
	if u.cached == nil {
		var err error
		if u.cached, err = u.machine.run(u.Tx, u.job); err != nil {
			return nil, err
		}
	}
	return u.cached.run, nil
}

// workPhase returns the phase of the job where somebody works on it.
func (u *jobUpdate) workPhase() (Phase, error) {
	if u.job.Plan == nil {
		return Preparing, nil
	}
	r, err := u.run()
	if err != nil {
		return "", err
	}
	return phaseOf(r), nil
}

// add applies an event to the run and keeps it, as it was encoded.
func (u *jobUpdate) add(text []byte, e *chains.Event) error {
	u.machine.mu.Lock()
	err := u.cached.run.Apply(*e)
	if err == nil {
		u.cached.events++
	}
	u.machine.mu.Unlock()
	if err != nil {
		return err
	}
	return addEvent(u.Tx, u.job, text)
}

// note adds a note of what the command does.
func (u *jobUpdate) note(kind NoteKind, format string, args ...any) {
	u.notes = append(u.notes, Note{Time: u.time, Kind: kind, Text: fmt.Sprintf(format, args...)})
}
