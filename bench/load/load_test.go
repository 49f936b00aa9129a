package main

import (
	"testing"
	"time"
)

// A smaller load on a real cluster: nothing that was acknowledged is lost.
func TestLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("runs four processes: not with -short")
	}
	dir := t.TempDir()
	binary, err := build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	l := load{rate: 20, time: 2 * time.Second, watchers: 20, workers: 10, hostile: 4}
	r, err := l.run(t.Context(), binary, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.verdict(); err != nil {
		t.Errorf("%v\n%s", err, r)
	}
	if len(r.took) == 0 || r.watching == 0 {
		t.Errorf("nothing was acknowledged, or nobody watches:\n%s", r)
	}
}
