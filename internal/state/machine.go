package state

import (
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/ulisse-gp/ulisse/internal/chains"
)

// Machine applies commands. It keeps the runs of jobs at work in memory, as a
// cache of what their events say.
type Machine struct {
	runs map[string]*cached
}

// cached is a run after so many events.
type cached struct {
	run    *chains.Run
	events uint64
}

// NewMachine returns a machine.
func NewMachine() *Machine { return &Machine{runs: map[string]*cached{}} }

// Init creates the buckets that are missing, and forgets what was cached of
// another state. It runs before the first command and after a restore.
func (m *Machine) Init(tx *bbolt.Tx) error {
	clear(m.runs)
	counted := tx.Bucket(usageBucket) != nil
	for _, b := range [][]byte{jobsBucket, activeBucket, clientsBucket, eventsBucket, blobsBucket, noticesBucket, notesBucket,
		tokensBucket, namespacesBucket, usageBucket, secretsBucket} {
		if _, err := tx.CreateBucketIfNotExists(b); err != nil {
			return err
		}
	}
	if err := initIndex(tx); err != nil || counted {
		return err
	}
	return count(tx)
}

// Apply applies a command in a transaction and returns the *Job that it made or
// changed (nil where there is none), or an error. After an error the
// transaction must not be committed.
func (m *Machine) Apply(tx *bbolt.Tx, index uint64, command []byte) any {
	c, err := decode(command)
	if err != nil {
		return err
	}
	j, err := m.apply(tx, index, c)
	if err != nil {
		if j != nil {
			delete(m.runs, j.ID) // it may be ahead of what is kept
		}
		return err
	}
	return j
}

func (m *Machine) apply(tx *bbolt.Tx, index uint64, c *Command) (*Job, error) {
	var id string
	switch {
	case c.Submit != nil:
		return m.submit(tx, index, c.Submit, c.Time)
	case c.Blob != nil:
		return nil, putBlob(tx, c.Blob)
	case c.Drop != nil:
		return nil, dropBlob(tx, c.Drop.SHA256)
	case c.Sent != nil:
		return nil, sent(tx, c.Sent)
	case c.Diagnose != nil:
		id = c.Diagnose.Job
	case c.Token != nil:
		return nil, createToken(tx, c.Token, c.Time)
	case c.Revoke != nil:
		return nil, revokeToken(tx, c.Revoke.ID, c.Time)
	case c.SetNamespace != nil:
		return nil, setNamespace(tx, c.SetNamespace)
	case c.DropNamespace != nil:
		return nil, dropNamespace(tx, c.DropNamespace.Name, c.Time)
	case c.NodeKey != nil:
		return nil, put(tx, secretsBucket, "node", c.NodeKey)
	case c.Loaded != nil:
		id = c.Loaded.Job
	case c.Report != nil:
		id = c.Report.Job
	case c.Decide != nil:
		id = c.Decide.Job
	case c.Place != nil:
		id = c.Place.Job
	case c.Act != nil:
		id = c.Act.Job
	case c.Extend != nil:
		id = c.Extend.Job
	case c.Fail != nil:
		id = c.Fail.Job
	}
	j, err := GetJob(tx, id)
	if err != nil {
		return nil, err
	}
	run, err := m.run(tx, j)
	if err != nil {
		return j, err
	}
	before := *j
	switch {
	case c.Diagnose != nil:
		err = j.diagnose(c.Diagnose.Health)
	case c.Loaded != nil:
		err = j.loaded(c.Loaded, run, c.Time)
	case c.Report != nil:
		err = m.report(tx, j, run, c.Report, c.Time)
	case c.Decide != nil:
		err = m.decide(tx, j, run, c.Decide, c.Time)
	case c.Place != nil:
		err = j.moved(c.Place, run, c.Time)
	case c.Act != nil && c.Act.Action == Delete:
		return j, m.remove(tx, j)
	case c.Act != nil:
		err = j.act(c.Act.Action, run, c.Time)
	case c.Extend != nil:
		err = m.extend(tx, j, run, c.Extend, c.Time)
	case c.Fail != nil:
		err = j.fail(c.Fail, c.Time)
	}
	if err != nil {
		return j, err
	}
	if j.Phase.Ended() {
		delete(m.runs, j.ID)
	}
	if kind := happened(before.Phase, before.Health, j, c.Time); kind != "" {
		if err := addNotice(tx, index, kind, j, c.Time); err != nil {
			return j, err
		}
	}
	j.Version = index
	if err := addNotes(tx, j.ID, notes(&before, j, c)); err != nil {
		return j, err
	}
	return j, putJob(tx, j)
}

// run returns a job's run, nil if it has none yet.
func (m *Machine) run(tx *bbolt.Tx, j *Job) (*chains.Run, error) {
	if j.Plan == nil {
		return nil, nil
	}
	c := m.runs[j.ID]
	if c == nil || c.events != j.Events {
		c = &cached{run: chains.New(*j.Plan)}
		var err error
		if c.events, err = replay(tx, j.ID, 0, c.run); err != nil {
			return nil, err
		}
		if c.events != j.Events {
			return nil, fmt.Errorf("job %s has %d events, not %d", j.ID, c.events, j.Events)
		}
		m.runs[j.ID] = c
	}
	return c.run, nil
}

// add applies an event to a run and keeps it.
func (m *Machine) add(tx *bbolt.Tx, j *Job, run *chains.Run, e *chains.Event) error {
	if err := run.Apply(*e); err != nil {
		return err
	}
	if err := addEvent(tx, j, e); err != nil {
		return err
	}
	m.runs[j.ID].events++
	return nil
}

func (m *Machine) submit(tx *bbolt.Tx, index uint64, s *Submit, t time.Time) (*Job, error) {
	if s.ID == "" || s.Chains < 1 || s.Chains > maxChains || s.Keeps < 0 || s.Keeps > maxKeeps {
		return nil, ErrMalformed
	}
	if s.ClientID != "" {
		var id string
		ok, err := get(tx, clientsBucket, clientKey(s.Namespace, s.ClientID), &id)
		if err != nil {
			return nil, err
		}
		if ok {
			j, err := GetJob(tx, id)
			if err == nil && (j.Spec != s.Spec || j.Data != s.Data) {
				return nil, fmt.Errorf("%w: the client id %q made job %s, which is another", ErrPhase, s.ClientID, id)
			}
			return j, err
		}
	}
	if _, err := GetJob(tx, s.ID); !errors.Is(err, ErrUnknown) {
		return nil, fmt.Errorf("%w: the id %s is taken", ErrMalformed, s.ID)
	}
	j := &Job{ID: s.ID, Name: s.Name, ClientID: s.ClientID, Owner: s.Owner, Namespace: s.Namespace, Spec: s.Spec, Data: s.Data,
		Priority: s.Priority, Chains: s.Chains, Keeps: s.Keeps, Phase: Queued, Submitted: t, Placements: make([]Placement, s.Chains+1), Version: index, Notify: s.Notify}
	if s.ClientID != "" {
		if err := put(tx, clientsBucket, clientKey(j.Namespace, s.ClientID), j.ID); err != nil {
			return nil, err
		}
	}
	if err := use(tx, j.Space(), Usage{Draws: j.Keeps}); err != nil {
		return nil, err
	}
	if err := addNotes(tx, j.ID, notes(nil, j, &Command{Time: t})); err != nil {
		return nil, err
	}
	return j, putJob(tx, j)
}

// fenced reports whether a driver may still speak for a chain.
func (j *Job) fenced(chain int, attempt int64) error {
	if chain < 0 || chain >= len(j.Placements) {
		return ErrMalformed
	}
	if p := &j.Placements[chain]; p.Worker == "" || p.Attempt != attempt || j.Phase.Ended() {
		return ErrFenced
	}
	return nil
}

func (j *Job) loaded(l *Loaded, run *chains.Run, t time.Time) error {
	if l.Info == nil || l.Plan == nil || l.Plan.Chains != j.Chains || l.Plan.Checkpoint < 1 || len(l.Plan.Names) == 0 {
		return ErrMalformed
	}
	if err := j.fenced(0, l.Attempt); err != nil {
		return err
	}
	if run != nil { // a second driver of the preparation
		if l.Info.SHA256 != j.Info.SHA256 {
			return fmt.Errorf("%w: the data have changed: their hash was %s and is %s", ErrMalformed, j.Info.SHA256, l.Info.SHA256)
		}
		return nil
	}
	j.Info, j.Plan, j.InstructionSet = l.Info, l.Plan, l.InstructionSet
	return nil
}

func (m *Machine) report(tx *bbolt.Tx, j *Job, run *chains.Run, r *Report, t time.Time) error {
	if err := j.fenced(r.Chain, r.Attempt); err != nil {
		return err
	}
	if run == nil {
		return ErrPhase
	}
	for i := range r.Events {
		e := &r.Events[i]
		if r.Chain == 0 && e.Prepared == nil && e.Provisional == nil || r.Chain > 0 && (e.Checkpoint == nil || e.Checkpoint.Chain != r.Chain) {
			return ErrMalformed
		}
		if err := m.add(tx, j, run, e); err != nil {
			return err
		}
	}
	if j.Phase.AtWork() {
		j.move(phaseOf(run), t)
	}
	return nil
}

func (m *Machine) decide(tx *bbolt.Tx, j *Job, run *chains.Run, d *Decide, t time.Time) error {
	if run == nil || j.Phase.Ended() || d.Extends != j.Extends || d.Event.Settings == nil && d.Event.Stop == nil {
		return ErrPhase
	}
	sampled := run.Stopped != nil
	if err := m.add(tx, j, run, &d.Event); err != nil {
		return err
	}
	if run.Stopped != nil && !sampled {
		j.Reason, j.DrawsSHA256, j.Final = run.Stopped.Reason, d.DrawsSHA256, d.Final
	}
	if run.Phase == chains.Done {
		j.release(phaseOf(run), t)
	} else if j.Phase.AtWork() {
		j.move(phaseOf(run), t)
	}
	return nil
}

// release moves a job to a phase in which nobody drives it.
func (j *Job) release(to Phase, t time.Time) {
	j.move(to, t)
	for c := range j.Placements {
		j.place(c, "", nil)
	}
}

func (j *Job) moved(p *Place, run *chains.Run, t time.Time) error {
	if j.Phase.Ended() {
		return ErrPhase
	}
	for _, m := range p.Places {
		if m.Chain < 0 || m.Chain > j.Chains {
			return ErrMalformed
		}
		if m.Worker != "" && j.Phase == Paused {
			return ErrPhase
		}
		j.place(m.Chain, m.Worker, m.Group)
	}
	if j.Placed() && j.Phase == Queued {
		j.move(phaseOf(run), t)
		j.Message = ""
	}
	return nil
}

func (j *Job) act(a Action, run *chains.Run, t time.Time) error {
	switch {
	case a == Pause && !j.Phase.Ended() && j.Phase != Paused:
		j.move(Paused, t)
	case a == Resume && (j.Phase == Paused || j.Phase == Failed), a == Preempt && j.Phase.AtWork():
		j.release(Queued, t) // whoever still drives it is fenced off
		j.Message = ""
	case a == Cancel && !j.Phase.Ended() && run == nil:
		j.release(Cancelled, t)
		j.Reason = chains.Cancelled
	default:
		return ErrPhase
	}
	return nil
}

func (m *Machine) extend(tx *bbolt.Tx, j *Job, run *chains.Run, e *Extend, t time.Time) error {
	if run == nil || j.Phase == Failed {
		return ErrPhase
	}
	if err := m.add(tx, j, run, &chains.Event{Extend: &chains.Extend{Draws: e.Draws, Certificate: e.Certificate}}); err != nil {
		return err
	}
	more := int64(e.Draws) * int64(j.Chains)
	if err := use(tx, j.Space(), Usage{Draws: more}); err != nil {
		return err
	}
	j.Keeps += more
	j.Extends++
	if run.Stopped == nil {
		j.Reason, j.DrawsSHA256, j.Final = "", "", nil
	}
	if j.Phase.Ended() {
		j.move(Queued, t)
		j.Active = 0 // max_time bounds what it is asked for now
	}
	return nil
}

func (j *Job) fail(f *Fail, t time.Time) error {
	if f.Attempt != 0 {
		if err := j.fenced(f.Chain, f.Attempt); err != nil {
			return err
		}
	}
	if j.Phase.Ended() {
		return ErrPhase
	}
	j.release(Failed, t)
	j.Message = f.Message
	return nil
}

// remove forgets a job that has ended.
func (m *Machine) remove(tx *bbolt.Tx, j *Job) error {
	if !j.Phase.Ended() {
		return ErrPhase
	}
	delete(m.runs, j.ID)
	if j.ClientID != "" {
		if err := remove(tx, clientsBucket, clientKey(j.Namespace, j.ClientID)); err != nil {
			return err
		}
	}
	if err := use(tx, j.Space(), Usage{Draws: -j.Keeps}); err != nil {
		return err
	}
	if err := errors.Join(removeEvents(tx, j.ID), removeNotes(tx, j.ID)); err != nil {
		return err
	}
	if err := removeEntry(tx, j); err != nil {
		return err
	}
	return remove(tx, jobsBucket, j.ID)
}

// dropBlob forgets a data set that no job refers to.
func dropBlob(tx *bbolt.Tx, sha256 string) error {
	used := false
	err := Jobs(tx, func(j *Job) bool {
		used = j.Data == sha256
		return !used
	})
	if err != nil {
		return err
	}
	if used {
		return fmt.Errorf("%w: a job refers to the data", ErrPhase)
	}
	b, err := GetBlob(tx, sha256)
	if errors.Is(err, ErrUnknown) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, n := range b.Spaces() {
		if err := use(tx, n, Usage{Bytes: -b.Size}); err != nil {
			return err
		}
	}
	return remove(tx, blobsBucket, sha256)
}

// maxKeeps bounds the draws of a job.
const maxKeeps = 1 << 48

// clientKey is that of a client's id, which is the client's own in its namespace.
func clientKey(namespace, id string) string {
	if n := space(namespace); n != DefaultNamespace || id[0] == 0 {
		return "\x00" + n + "\x00" + id
	}
	return id
}

// maxChains bounds the chains of a job.
const maxChains = 4096
