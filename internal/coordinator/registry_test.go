package coordinator

import (
	"testing"
	"time"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// A worker that drains goes on draining when it connects anew, but one that has
// left, or that was told to stop, is another process when it comes back.
func TestDrainedWorkerComesBack(t *testing.T) {
	for name, c := range map[string]struct {
		before worker
		want   bool
	}{
		"at work":                   {worker{}, false},
		"drained by an operator":    {worker{draining: true}, true},
		"drained, and left":         {worker{draining: true, left: true}, false},
		"told to stop":              {worker{draining: true, leaving: true}, false},
		"told to stop, and left so": {worker{draining: true, leaving: true, left: true}, false},
	} {
		r := newRegistry()
		c.before.id = "w"
		r.byID["w"] = &c.before
		s := newSession("")
		r.connect(&pb.Hello{Id: "w"}, s, time.Now())
		if w := r.byID["w"]; w.draining != c.want || w.left || w.leaving {
			t.Errorf("%s: comes back draining %v, left %v, leaving %v", name, w.draining, w.left, w.leaving)
		}
	}
}
