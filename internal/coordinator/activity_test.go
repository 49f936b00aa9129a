package coordinator

import (
	"math"
	"testing"
	"time"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

func TestCourseOfAWorker(t *testing.T) {
	var c course
	now := time.Unix(1e9, 0)
	load := &pb.Load{}
	for range 5000 { // seconds
		now = now.Add(time.Second)
		load = &pb.Load{Pairs: load.Pairs + 100, BusySeconds: load.BusySeconds + 0.5}
		c.see(now, load)
	}
	if len(c.at) > maxCourse || len(c.at) < maxCourse/2-1 || now.Sub(c.at[0]) < 4900*time.Second {
		t.Fatalf("%d points, the first %v ago", len(c.at), now.Sub(c.at[0]))
	}
	for i := range c.at {
		if math.Abs(c.rate[i]-100) > 1e-9 || math.Abs(c.busy[i]-0.5) > 1e-9 {
			t.Fatalf("%v pairs a second on %v cores", c.rate[i], c.busy[i])
		}
	}
	n := len(c.at)
	c.see(now.Add(time.Second), &pb.Load{Pairs: 1}) // it was started again
	c.see(now.Add(time.Minute), &pb.Load{Pairs: 60})
	if len(c.at) != n+1 || c.rate[n] != 1 {
		t.Errorf("%d points, %v pairs a second", len(c.at)-n, c.rate[n])
	}
}

func TestWorkersComeAndGo(t *testing.T) {
	r := newRegistry()
	s := newSession("")
	for range maxWorkerEvents {
		r.connect(&pb.Hello{Id: "w1"}, s, time.Now())
		r.disconnect("w1", s, time.Now())
	}
	h := r.history()
	if n := len(h.Events); n > maxWorkerEvents || n < maxWorkerEvents/2 {
		t.Fatalf("%d events", n)
	}
	if e := h.Events[len(h.Events)-2:]; e[0].Kind != workerJoined || e[1].Kind != workerLost || e[1].Worker != "w1" {
		t.Errorf("%v", e)
	}
	r.connect(&pb.Hello{Id: "w1"}, s, time.Now())
	r.byID["w1"].left = true
	r.disconnect("w1", s, time.Now())
	if h = r.history(); h.Events[len(h.Events)-1].Kind != workerLeft {
		t.Errorf("%v", h.Events[len(h.Events)-1])
	}
}
