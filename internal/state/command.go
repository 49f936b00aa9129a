package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/dataset"
)

// Command is a change of the state: Time and exactly one other field are set.
type Command struct {
	Format uint64    `json:"format,omitempty"` // first, for FormatOf; see there
	Time   time.Time `json:"time"`

	Submit *Submit `json:"submit,omitempty"`
	Loaded *Loaded `json:"loaded,omitempty"`
	Report *Report `json:"report,omitempty"`
	Decide *Decide `json:"decide,omitempty"`
	Place  *Place  `json:"place,omitempty"`
	Act    *Act    `json:"act,omitempty"`
	Extend *Extend `json:"extend,omitempty"`
	Fail   *Fail   `json:"fail,omitempty"`
	Blob   *Blob   `json:"blob,omitempty"`
	Drop   *Drop   `json:"drop,omitempty"`

	Diagnose      *Diagnose      `json:"diagnose,omitempty"`
	Sent          *Sent          `json:"sent,omitempty"`
	Token         *Token         `json:"token,omitempty"`
	Revoke        *Revoke        `json:"revoke,omitempty"`
	SetNamespace  *SetNamespace  `json:"set_namespace,omitempty"`
	DropNamespace *DropNamespace `json:"drop_namespace,omitempty"`
	NodeKey       *NodeKey       `json:"node_key,omitempty"`
}

// Submit makes a job. A client id that made one before returns that one.
type Submit struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	ClientID  string `json:"client_id,omitempty"`
	Owner     string `json:"owner,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Spec      string `json:"spec"`
	Data      string `json:"data,omitempty"`
	Priority  int    `json:"priority,omitempty"`
	Chains    int    `json:"chains"`

	Notify *Notify `json:"notify,omitempty"`
	Keeps  int64   `json:"keeps,omitempty"` // draws at most, of all chains
}

// Loaded tells what the data are, and the plan that follows.
type Loaded struct {
	Job            string        `json:"job"`
	Attempt        int64         `json:"attempt"` // of the preparation
	Info           *dataset.Info `json:"info"`
	Plan           *chains.Plan  `json:"plan"`
	InstructionSet string        `json:"instruction_set"`
}

// Report adds events of a driver: the preparation, or checkpoints of a chain.
type Report struct {
	Job     string         `json:"job"`
	Chain   int            `json:"chain"`
	Attempt int64          `json:"attempt"`
	Events  []chains.Event `json:"events"`
}

// Decide adds an event that the leader computed: settings, or the end.
type Decide struct {
	Job     string       `json:"job"`
	Extends int          `json:"extends"` // as the leader saw them
	Event   chains.Event `json:"event"`
	// DrawsSHA256 is the hash of the draws that are kept at the end, and Final
	// what they came to.
	DrawsSHA256 string `json:"draws_sha256,omitempty"`
	Final       *Final `json:"final,omitempty"`
}

// Place moves chains of a job to workers.
type Place struct {
	Job    string  `json:"job"`
	Places []Moved `json:"places"`
}

// Moved is a chain's new place. No worker means that it has none for now.
type Moved struct {
	Chain  int      `json:"chain"`
	Worker string   `json:"worker,omitempty"`
	Group  []string `json:"group,omitempty"`
}

// Action is what a user, or the scheduler, does to a job.
type Action string

// The actions.
const (
	Pause   Action = "pause"
	Resume  Action = "resume"
	Preempt Action = "preempt" // back to the queue
	Cancel  Action = "cancel"  // of a job that has no run yet
	Delete  Action = "delete"
)

// Act does an action.
type Act struct {
	Job    string `json:"job"`
	Action Action `json:"action"`
}

// Extend lets a job draw more, or be certified.
type Extend struct {
	Job         string       `json:"job"`
	Draws       int          `json:"draws"`
	Certificate *chains.Plan `json:"certificate,omitempty"` // nil for none
}

// Fail ends a job that cannot go on.
type Fail struct {
	Job     string `json:"job"`
	Chain   int    `json:"chain"`
	Attempt int64  `json:"attempt"` // of the driver that says so; 0 for the leader
	Message string `json:"message"`
}

// Blob notes a data set that is whole and replicated.
type Blob struct {
	SHA256  string    `json:"sha256"`
	Size    int64     `json:"size"`
	Stored  time.Time `json:"stored"`
	Holders []string  `json:"holders"`
	// Namespaces are those whose data it is; none means the default one.
	Namespaces []string `json:"namespaces,omitempty"`
}

// Drop forgets a data set.
type Drop struct {
	SHA256 string `json:"sha256"`
}

// Errors that Apply returns. A command that is refused changes nothing.
var (
	// ErrUnknown is returned for a job, or a data set, that there is not.
	ErrUnknown = errors.New("there is no such job")
	// ErrFenced is returned for what a driver says that was replaced.
	ErrFenced = errors.New("another driver has taken over the chain")
	// ErrPhase is returned for an action that the job's phase does not allow.
	ErrPhase = errors.New("the job's state does not allow it")
	// ErrMalformed is returned for a command that makes no sense.
	ErrMalformed = errors.New("the command is malformed")
)

// Encode returns a command as it is replicated.
func (c *Command) Encode() ([]byte, error) { return json.Marshal(c) }

// decode reads a command.
func decode(text []byte) (*Command, error) {
	var c Command
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	set := 0
	for _, is := range []bool{c.Submit != nil, c.Loaded != nil, c.Report != nil, c.Decide != nil, c.Place != nil,
		c.Act != nil, c.Extend != nil, c.Fail != nil, c.Blob != nil, c.Drop != nil,
		c.Diagnose != nil, c.Sent != nil,
		c.Token != nil, c.Revoke != nil, c.SetNamespace != nil, c.DropNamespace != nil, c.NodeKey != nil} {
		if is {
			set++
		}
	}
	if set != 1 {
		return nil, fmt.Errorf("%w: %d changes in one", ErrMalformed, set)
	}
	return &c, nil
}
