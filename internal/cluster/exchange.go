package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// The exchange is one JSON request and one JSON response on a connection of its
// own: how nodes find each other before there is a cluster, and how members
// tell the leader about themselves.
const (
	opStatus  = "status"  // who are you, and what do you know
	opBeat    = "beat"    // I live, and have applied so much
	opJoin    = "join"    // take me in
	opLeave   = "leave"   // take me out
	opMembers = "members" // who is there (asked of the leader)
	opState   = "state"   // send what you hold: after the answer comes a backup
)

const (
	exchangeLimit   = 1 << 20 // bytes of a message
	exchangeTimeout = 30 * time.Second
)

type request struct {
	Op       string   `json:"op"`
	From     Server   `json:"from"`
	GRPC     string   `json:"grpc,omitempty"`
	HTTP     string   `json:"http,omitempty"`
	Version  string   `json:"version,omitempty"`
	Format   uint64   `json:"format,omitempty"`
	Applied  uint64   `json:"applied,omitempty"`
	Slow     bool     `json:"slow,omitempty"`  // the disk is
	Fault    string   `json:"fault,omitempty"` // what is wrong
	Checked  checked  `json:"checked,omitzero"`
	Room     *int64   `json:"room,omitempty"` // bytes that the disk has for more, if that is known
	NonVoter bool     `json:"non_voter,omitempty"`
	Auto     bool     `json:"auto,omitempty"` // joining by itself, not by somebody's will
	View     []Server `json:"view,omitempty"`
}

type response struct {
	Error     string   `json:"error,omitempty"`
	NotLeader bool     `json:"not_leader,omitempty"`
	Leader    Server   `json:"leader,omitzero"`
	From      Server   `json:"from,omitzero"`
	Servers   []Server `json:"servers,omitempty"` // the members, where there is a cluster
	View      []Server `json:"view,omitempty"`    // whom it has seen, where there is none
	Joins     bool     `json:"joins,omitempty"`   // it founds nothing, it waits for a cluster
	Commit    uint64   `json:"commit,omitempty"`  // of the leader, to a beat
	Differs   uint64   `json:"differs,omitempty"` // entry at which the asker's state is not that of the others
	Members   []Member `json:"members,omitempty"`
}

// err returns the error that a response carries.
func (r response) err() error {
	switch {
	case r.NotLeader:
		return &NotLeaderError{Leader: r.Leader}
	case r.Error != "":
		return errors.New(r.Error)
	}
	return nil
}

// connHandler serves one request on a connection.
func connHandler(answer func(context.Context, request) response, state func(io.Writer) error) func(net.Conn) {
	return func(c net.Conn) {
		ctx, cancel := context.WithTimeout(context.Background(), exchangeTimeout)
		defer cancel()
		c.SetDeadline(time.Now().Add(exchangeTimeout))
		var r request
		if err := json.NewDecoder(io.LimitReader(c, exchangeLimit)).Decode(&r); err != nil {
			return
		}
		// The asker may be gone before the answer: that is no one's error.
		resp := answer(ctx, r)
		if json.NewEncoder(c).Encode(resp) == nil && r.Op == opState && resp.err() == nil {
			_ = state(&patientWriter{c})
		}
	}
}

// patientWriter writes to a connection that has to take something now and again.
type patientWriter struct{ net.Conn }

func (w *patientWriter) Write(p []byte) (int, error) {
	w.SetWriteDeadline(time.Now().Add(exchangeTimeout))
	return w.Conn.Write(p)
}

// ask sends a request to an address and returns the answer.
func (n *Node) ask(ctx context.Context, address string, r request) (response, error) {
	ctx, cancel := context.WithTimeout(ctx, exchangeTimeout)
	defer cancel()
	c, err := n.mux.dial(ctx, address, streamExchange)
	if err != nil {
		return response{}, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	resp, _, err := n.put(c, address, r)
	return resp, err
}

// put puts a request on a connection and returns the answer, and what of that which
// follows has been read.
func (n *Node) put(c net.Conn, address string, r request) (resp response, rest io.Reader, err error) {
	r.From = Server{n.cfg.ID, n.cfg.Advertise}
	r.GRPC, r.HTTP, r.Version, r.Format = n.cfg.GRPC, n.cfg.HTTP, n.cfg.Version, n.cfg.Format
	if err := json.NewEncoder(c).Encode(r); err != nil {
		return resp, nil, fmt.Errorf("cluster: ask %s: %w", address, err)
	}
	in := json.NewDecoder(io.LimitReader(c, exchangeLimit))
	if err := in.Decode(&resp); err != nil {
		return resp, nil, fmt.Errorf("cluster: answer of %s: %w", address, err)
	}
	rest = in.Buffered()
	if r.Op == opState { // the encoder ends a line
		if _, err := io.CopyN(io.Discard, rest, 1); errors.Is(err, io.EOF) {
			rest = &afterLine{c: c}
		}
	}
	return resp, rest, nil
}

// afterLine is empty, but for the end of a line that has not come yet.
type afterLine struct {
	c    io.Reader
	done bool
}

func (a *afterLine) Read([]byte) (int, error) {
	if !a.done {
		a.done = true
		var end [1]byte
		if _, err := io.ReadFull(a.c, end[:]); err != nil {
			return 0, err
		}
	}
	return 0, io.EOF
}

// askLeader sends a request to the leader, wherever it is, and returns what it
// answers. Not for the leader itself.
func (n *Node) askLeader(ctx context.Context, r request) (response, error) {
	leader := n.Leader()
	if leader.Address == "" || leader.ID == n.cfg.ID {
		return response{}, n.notLeader()
	}
	resp, err := n.ask(ctx, leader.Address, r)
	if err != nil {
		return resp, err
	}
	return resp, resp.err()
}

// answer serves a request.
func (n *Node) answer(ctx context.Context, r request) response {
	resp := response{From: Server{n.cfg.ID, n.cfg.Advertise}, Leader: n.Leader()}
	var err error
	switch r.Op {
	case opStatus:
		resp.Servers, resp.View, resp.Joins = n.servers(), n.view.list(), n.cfg.BootstrapExpect == 0
	case opBeat:
		resp.Commit, err = n.raft.CommitIndex(), n.heard(ctx, r)
		if err == nil {
			resp.Differs = n.compare(r.From.ID, r.Checked)
		}
	case opState:
		if !n.IsLeader() || n.isDiverged() {
			err = n.notLeader()
		}
	case opJoin:
		err = n.join(ctx, r)
	case opLeave:
		err = n.remove(ctx, r.From.ID, false)
	case opMembers:
		if !n.IsLeader() {
			err = n.notLeader()
			break
		}
		resp.Members, err = n.Members(ctx)
	default:
		err = fmt.Errorf("cluster: unknown request %q: a node of another version?", r.Op)
	}
	if err != nil {
		resp.Error, resp.NotLeader = err.Error(), errors.Is(err, ErrNotLeader)
	}
	return resp
}

// Refusal is what a listener in front of a node's may answer a node that it
// refuses before the first byte: the asker gets it as the error.
func Refusal(reason string) []byte {
	text, _ := json.Marshal(response{Error: reason}) // a string: cannot fail
	return append(text, '\n')
}
