package auth

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/rpc"
	"github.com/ulisse-gp/ulisse/internal/state"
)

// Event is a call as the audit log keeps it.
type Event struct {
	Time    time.Time     `json:"time"`
	User    string        `json:"user,omitempty"`
	Token   string        `json:"token,omitempty"` // id
	Role    state.Role    `json:"role,omitempty"`
	Node    Node          `json:"node,omitempty"` // that called, or passed the call on
	From    string        `json:"from"`           // address
	Passed  bool          `json:"passed_on,omitempty"`
	Method  string        `json:"method"`
	What    string        `json:"what,omitempty"`  // what the request names
	Made    string        `json:"made,omitempty"`  // what the answer names
	Outcome string        `json:"outcome"`         // OK, or the code of the error
	Error   string        `json:"error,omitempty"` // why it was refused
	More    int           `json:"more,omitempty"`  // refusals of the caller since the line before, which have none
	Took    time.Duration `json:"took_ns,omitzero"`
}

// note keeps a call that changed something, that took data or draws if these are
// kept, or that was not allowed.
func (g *Guard) note(ctx context.Context, id *Identity, rule *pb.Rule, method, what, made string, start time.Time, err error) {
	code := status.Code(err)
	refused := code == codes.Unauthenticated || code == codes.PermissionDenied
	kept := (rule.GetChange() || rule.GetContents() && g.AuditReads) && !id.IsNode()
	if g.Audit == nil || !kept && !refused {
		return
	}
	md, _ := metadata.FromIncomingContext(ctx)
	e := Event{Time: start.UTC(), User: id.User, Token: id.Token, Role: id.Role, Node: id.Node, From: id.From, Method: method, What: what, Made: made,
		Passed: id.Node != "" && len(md.Get(rpc.Forwarded)) > 0, Outcome: code.String(), Took: g.Now().Sub(start)}
	if err != nil {
		e.Error = short(status.Convert(err).Message())
	}
	if refused {
		g.refusals.note(g, e)
		return
	}
	g.Audit(e)
}

// refusals writes at most a line a second of each caller who is refused, so that
// nobody writes the log full. Those of callers who are not known go elsewhere: they
// cannot wash away what others did.
type refusals struct {
	mu sync.Mutex
	by map[string]*refusal
}

type refusal struct {
	written time.Time
	last    Event // that was not written
	more    int   // that were not written
}

// How often a caller's refusals are written, and how many callers are told from
// each other.
const (
	refusalEvery = time.Second
	refusalMost  = 1000
)

func (r *refusals) note(g *Guard, e Event) {
	key := e.User + "\x00" + e.From
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[string]*refusal{}
	}
	if r.by[key] == nil && len(r.by) >= refusalMost {
		key, e.From = "", "several"
	}
	was := r.by[key]
	if was != nil && e.Time.Sub(was.written) < refusalEvery {
		was.last = e
		was.more++
		return
	}
	if was == nil {
		was = &refusal{}
		r.by[key] = was
	}
	was.write(g, e)
}

// write writes a refusal, and how many there were like it since the last.
func (r *refusal) write(g *Guard, e Event) {
	e.More = r.more
	r.written, r.more = e.Time, 0
	if e.User == "" && e.Node == "" && g.AuditStrangers != nil {
		g.AuditStrangers(e)
		return
	}
	g.Audit(e)
}

// flush writes what was left, and forgets callers that are quiet.
func (r *refusals) flush(g *Guard, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, was := range r.by {
		switch quiet := now.Sub(was.written); {
		case quiet < refusalEvery:
		case was.more > 0:
			was.more-- // this one
			was.write(g, was.last)
			was.written = now
		case quiet > callerIdle:
			delete(r.by, key)
		}
	}
}

// What the log keeps of requests and answers: their short texts and numbers of
// these names. Contents and secrets have others.
var (
	inRequests = []protoreflect.Name{"id", "name", "job", "sha256", "namespace", "namespaces", "client_id", "role", "data", "draws", "priority", "quota",
		"jobs", "chains", "bytes", "force", "raft_address", "non_voter"}
	inAnswers = []protoreflect.Name{"id", "token", "sha256"}
)

// named returns what a message names.
func named(m any, names []protoreflect.Name) string {
	msg, ok := m.(proto.Message)
	if !ok || msg == nil {
		return ""
	}
	var out []string
	r := msg.ProtoReflect()
	fields := r.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !slices.Contains(names, f.Name()) || f.IsMap() || !r.IsValid() || !r.Has(f) {
			continue
		}
		v := r.Get(f)
		switch {
		case f.IsList() && f.Kind() == protoreflect.StringKind:
			var all []string
			for j := range min(v.List().Len(), 20) {
				all = append(all, v.List().Get(j).String())
			}
			out = append(out, fmt.Sprintf("%s=%s", f.Name(), short(strings.Join(all, ","))))
		case f.IsList() || f.Kind() == protoreflect.BytesKind:
		case f.Message() != nil:
			if inner := named(v.Message().Interface(), names); inner != "" {
				out = append(out, fmt.Sprintf("%s=(%s)", f.Name(), inner))
			}
		default:
			out = append(out, fmt.Sprintf("%s=%s", f.Name(), short(v.String())))
		}
	}
	return strings.Join(out, " ")
}

// short bounds a text.
func short(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}
