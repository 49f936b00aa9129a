package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/state"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// Notes and tags are written, printed, found, and removed, also on jobs that have ended.
func TestNotesAndTags(t *testing.T) {
	s := cluster(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, id := range []string{"a", "b"} {
		s.Apply(at, &state.Submit{ID: id, Name: "job-" + id, Chains: 1, Spec: tinySpec})
	}
	s.Apply(at, &state.Act{Job: "a", Action: state.Cancel})
	if out := good(t, "tag", "job-a", "paper", "figure-3") + good(t, "tag", "a", "slow", "--remove", "figure-3") + good(t, "tag", "b", "paper"); out != "figure-3\npaper\npaper\nslow\npaper\n" {
		t.Error(out)
	}
	if out := good(t, "note", "a", "why\nso") + good(t, "note", "a"); out != "why\nso\n" {
		t.Error(out)
	}
	if out := good(t, "tag", "a"); out != "paper\nslow\n" {
		t.Error(out)
	}
	jobs := asJSON[[]client.JobView](t, "jobs", "--tag", "slow,paper")
	if len(jobs) != 1 || jobs[0].ID != "a" || jobs[0].Note != "why\nso" || strings.Join(jobs[0].Tags, " ") != "paper slow" {
		t.Errorf("got %v", jobs)
	}
	if jobs := asJSON[[]client.JobView](t, "jobs", "--tag", "paper"); len(jobs) != 2 {
		t.Errorf("got %v", jobs)
	}
	if out := good(t, "jobs"); !strings.Contains(out, "paper,slow") {
		t.Error(out)
	}
	if out := good(t, "note", "a", "") + good(t, "note", "a"); out != "" {
		t.Error(out)
	}
	for want, args := range map[string][]string{
		`"a b" is not a tag`: {"tag", "a", "a b"}, "a note of 4001 bytes": {"note", "a", strings.Repeat("x", 4001)}, "there is no job": {"note", "none", "x"},
	} {
		if code, _, stderr := ulisse(t, "", args...); code == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%.40q: %d %s", args, code, stderr)
		}
	}
	if code, _, stderr := ulisse(t, "", append([]string{"tag", "a"}, strings.Fields("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19")...)...); code == 0 || !strings.Contains(stderr, "21 tags, and a job has 20 at most") {
		t.Error(code, stderr)
	}
}

func TestJobCommands(t *testing.T) {
	s := cluster(t)
	spec := write(t, t.TempDir(), "s.yaml", tinySpec)
	other := write(t, t.TempDir(), "o.yaml", strings.Replace(tinySpec, "name: tiny", "name: other", 1))
	id := strings.TrimSpace(good(t, "submit", spec, "--priority", "7", "--client-id", "x"))
	if again := strings.TrimSpace(good(t, "submit", spec, "--client-id", "x")); again != id {
		t.Errorf("%s and %s are of one client id", id, again)
	}
	good(t, "submit", other)
	third := asJSON[object](t, "submit", other)["id"].(string)

	jobs := asJSON[[]object](t, "jobs")
	if len(jobs) != 3 || jobs[0]["id"] != third || jobs[2]["id"] != id || jobs[2]["name"] != "tiny" || jobs[2]["state"] != "queued" || jobs[2]["priority"] != 7. ||
		jobs[2]["rhat"] != nil || jobs[2]["submitted"] == nil || len(jobs[2]["chains"].([]any)) != 0 {
		t.Errorf("got %v", jobs)
	}
	if out := good(t, "jobs"); strings.Count(out, "\n") != 4 || !strings.HasPrefix(out, "ID ") || !strings.Contains(out, "tiny   queued  -       7") {
		t.Errorf("got\n%s", out)
	}
	if jobs := asJSON[[]object](t, "jobs", "--limit", "1"); len(jobs) != 1 || jobs[0]["id"] != third {
		t.Errorf("the newest: %v", jobs)
	}
	old := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	s.Apply(old, &state.Submit{ID: "old", Name: "other", Chains: 2, Spec: strings.Replace(tinySpec, "name: tiny", "name: other", 1)})
	s.Apply(old, &state.Act{Job: "old", Action: state.Cancel})
	if jobs := asJSON[[]object](t, "jobs", "--name", "the", "--state", "queued,cancelled"); len(jobs) != 3 || jobs[2]["id"] != "old" || jobs[2]["submitted"] != "2020-01-02T03:04:05Z" {
		t.Errorf("got %v", jobs)
	}
	good(t, "pause", id)
	good(t, "pause", third)
	if jobs := asJSON[[]object](t, "jobs", "--name", "ther", "--state", "queued,paused", "--since", "2020-01-02T03:04:05Z"); len(jobs) != 2 || jobs[0]["id"] != third {
		t.Errorf("got %v", jobs)
	}
	if jobs := asJSON[[]object](t, "jobs", "--state", "sampling"); jobs == nil || len(jobs) != 0 {
		t.Errorf("got %v", jobs)
	}
	good(t, "resume", id)
	good(t, "resume", third)
	good(t, "delete", "old")
	if out := good(t, "pause", "tiny"); out != "tiny ("+id+") pauses at its next checkpoint\n" {
		t.Error(out)
	}
	if j := asJSON[object](t, "resume", id); j["state"] != "queued" {
		t.Error(j)
	}
	code, stdout, stderr := ulisse(t, "", "cancel", "other")
	if code != 0 || stdout != "other ("+third+") is cancelled\n" || stderr != "2 jobs are called other: this is the newest, "+third+"\n" {
		t.Error(code, stdout, stderr)
	}
	good(t, "delete", third)
	if jobs := asJSON[[]object](t, "jobs"); len(jobs) != 2 {
		t.Errorf("got %v", jobs)
	}
	for i := range 3 {
		s.Log(id, i, "w", fmt.Sprint("line ", i))
	}
	if out := good(t, "logs", "tiny", "--gradients", "--tail", "2"); !strings.HasSuffix(out, "chain 2  w  line 2\n") || strings.Count(out, "\n") != 2 {
		t.Error(out)
	}
	if l := asJSON[object](t, "logs", id, "--gradients", "--chain", "1"); l["text"] != "line 1" || l["chain"] != 1. || l["worker"] != "w" {
		t.Error(l)
	}
}

func TestClusterCommands(t *testing.T) {
	s := cluster(t)
	s.Connect(&pb.Hello{Id: "w-alpha", Address: "10.0.0.1:7100", Version: "1", Capacity: &pb.Capacity{Cores: 8, InstructionSet: "avx512", PairsPerSecond: 3e9, MemoryBytes: 16 << 30}})
	_, leave := s.Connect(&pb.Hello{Id: "w-beta", Capacity: &pb.Capacity{Cores: 4, InstructionSet: "avx2", PairsPerSecond: 1e9}})
	leave()
	workers := asJSON[[]object](t, "workers")
	if len(workers) != 2 || workers[0]["id"] != "w-alpha" || workers[0]["state"] != "ready" || workers[1]["state"] != "lost" || workers[0]["cores"] != 8. {
		t.Errorf("got %v", workers)
	}
	if out := good(t, "workers"); !strings.Contains(out, "w-alpha  ready  8      avx512  3e+09    16 GiB") {
		t.Error(out)
	}
	if out := good(t, "drain", "w-a"); out != "w-alpha drains\n" {
		t.Error(out)
	}
	if w := asJSON[object](t, "drain", "w-alpha"); w["state"] != "draining" {
		t.Error(w)
	}
	members := asJSON[object](t, "cluster")
	if list := members["members"].([]any); len(list) != 3 || members["leader"] != "c1" || list[1].(object)["role"] != "voter" || list[1].(object)["lag"] != 1. {
		t.Errorf("got %v", members)
	}
	if out := good(t, "cluster"); out != good(t, "cluster", "members") || !strings.Contains(out, "c3  non-voter  dead     0    never") {
		t.Error(out)
	}
	if m := asJSON[object](t, "cluster", "promote", "c3"); m["members"].([]any)[2].(object)["role"] != "voter" {
		t.Error(m)
	}
	if m := asJSON[object](t, "cluster", "demote", "c3"); m["members"].([]any)[2].(object)["role"] != "non-voter" {
		t.Error(m)
	}
	if m := asJSON[object](t, "cluster", "transfer"); m["leader"] != "c2" {
		t.Error(m)
	}
	if m := asJSON[object](t, "cluster", "transfer", "c1"); m["leader"] != "c1" {
		t.Error(m)
	}
	if out := good(t, "cluster", "remove", "c3"); strings.Contains(out, "c3") {
		t.Error(out)
	}
	file := filepath.Join(t.TempDir(), "backup")
	good(t, "cluster", "backup", file)
	if st, err := os.Stat(file); err != nil || st.Size() != 1_800_000 {
		t.Error(st, err)
	}
	good(t, "cluster", "restore", file)
	// On a terminal it asks.
	var stdout, stderr bytes.Buffer
	a := &App{Stdin: strings.NewReader("n\n"), Stdout: &stdout, Stderr: &stderr, TTY: true, Now: time.Now}
	if code := a.Execute(context.Background(), []string{"cluster", "restore", file}); code != ExitFailure || !strings.Contains(stderr.String(), "replace all jobs and draws") {
		t.Error(code, stderr.String())
	}
}

func TestContextCommands(t *testing.T) {
	s := cluster(t)
	t.Setenv(client.EnvCoordinators, "")
	good(t, "context", "add", "lab", s.Addr()+",127.0.0.1:1")
	good(t, "context", "add", "far", "far")
	if list := asJSON[[]object](t, "context", "list"); len(list) != 2 || list[0]["name"] != "far" || list[0]["current"] != false || list[0]["coordinators"].([]any)[0] != "far:7000" || list[1]["current"] != true {
		t.Errorf("got %v", list)
	}
	good(t, "jobs") // of lab
	good(t, "context", "use", "far")
	good(t, "jobs", "--context", "lab")
	if out := good(t, "context", "list"); !strings.Contains(out, "far   *        far:7000") {
		t.Error(out)
	}
	good(t, "context", "remove", "far")
	good(t, "jobs", "--coordinators", s.Addr())
	code, _, stderr := ulisse(t, "", "context", "use", "far")
	if code != ExitBadInput || !strings.Contains(stderr, `there is no context "far" in `) || !strings.HasSuffix(stderr, ": it has lab\n") {
		t.Error(code, stderr)
	}
}

func TestRemoteExitCodes(t *testing.T) {
	s := cluster(t)
	for _, w := range []string{"w-alpha", "w-beta"} { // of which none is at work
		_, leave := s.Connect(&pb.Hello{Id: w})
		leave()
	}
	dir := t.TempDir()
	spec := write(t, dir, "s.yaml", tinySpec)
	refused := write(t, dir, "r.yaml", strings.Replace(tinySpec, "max_draws: 20", "max_draws: 2000000000", 1))
	write(t, dir, "x.csv", "a,y\n1,2\n2,x\n")
	bad := write(t, dir, "bad.yaml", "name: a\ndata: {path: x.csv, target: y}\n")
	id := strings.TrimSpace(good(t, "submit", spec))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"submit"}, 2, "give a specification, or --demo"},
		{[]string{"submit", refused}, 2, "ulisse: stop.max_draws: a chain keeps 1073741824 draws at most\n"},
		{[]string{"submit", bad}, 2, `x.csv: line 3, column "y" (field 2): "x" is not a number`},
		{[]string{"submit", spec, "--out", filepath.Join(dir, "o")}, 2, "give --wait too"},
		{[]string{"submit", spec, "--wait", "--out", dir}, 2, "is not empty: choose another with --out"},
		{[]string{"submit", spec, "--by-reference"}, 2, "--by-reference: the specification generates its data"},
		{[]string{"submit", bad, "--data", "-", "--by-reference"}, 2, "workers cannot read this program's standard input"},
		{[]string{"watch", "nobody"}, 2, `there is no job "nobody": see 'ulisse jobs'`},
		{[]string{"watch"}, 2, `takes JOB, and was given none`},
		{[]string{"extend", id}, 2, "say what more it is to do: --draws"},
		{[]string{"delete", id}, 1, "which is queued: cancel it first"},
		{[]string{"draws", id}, 1, "job " + id + " has no draws yet: its state is queued"},
		{[]string{"summary", id}, 1, "has no draws yet"},
		{[]string{"logs", id, "--tail", "-1"}, 2, "give positive numbers"},
		{[]string{"logs", id, "--chain", "1"}, 2, "--chain is of gradients: give --gradients too"},
		{[]string{"jobs", "--state", "sleeping"}, 2, "the states are queued, preparing, warmup, sampling, paused, converged, unconverged, cancelled, failed"},
		{[]string{"jobs", "--since", "yesterday"}, 2, "give a time span like 24h"},
		{[]string{"jobs", "--timeout", "0s"}, 2, "give a positive time"},
		{[]string{"jobs", "--context", "none"}, 2, `there is no context "none"`},
		{[]string{"jobs", "--coordinators", nobody, "--timeout", "100ms"}, 1, "no answer from the cluster at " + nobody + ": connection refused"},
		{[]string{"drain", "w-"}, 2, `"w-" begins the ids of 2 workers`},
		{[]string{"data", "download", "abc"}, 2, "64 hex digits"},
		{[]string{"data", "download", strings.Repeat("a", 64)}, 2, "no coordinator has blob"},
		{[]string{"data", "upload", filepath.Join(dir, "none")}, 2, "cannot read the data: open"},
		{[]string{"data", "lost"}, 2, `there is no command "lost": did you mean "list"?`},
		{[]string{"data", "list", "x"}, 2, `takes no argument, and was given "x"`},
		{[]string{"cluster", "promote", "c9"}, 2, `no such member: "c9"`},
		{[]string{"cluster", "prmote"}, 2, `did you mean "promote"?`},
		{[]string{"cluster", "restore", filepath.Join(dir, "none")}, 2, "cannot read the backup: stat"},
		{[]string{"cluster", "restore", spec}, 2, "not a whole backup"},
		{[]string{"context", "add", "x", "http://h"}, 2, "give host:port, without a scheme"},
	} {
		code, _, stderr := ulisse(t, "", c.args...)
		if code != c.code || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") > 1 {
			t.Errorf("%s: exit %d, want %d\n%s", strings.Join(c.args, " "), code, c.code, stderr)
		}
	}
}

// A queued job says what it waits for, and a failed one why, in the list and where it is watched.
func TestJobsSayWhatTheyWaitFor(t *testing.T) {
	s := cluster(t)
	spec := write(t, t.TempDir(), "s.yaml", tinySpec)
	first := strings.TrimSpace(good(t, "submit", spec, "-q"))
	s.Connect(&pb.Hello{Id: "w", Capacity: &pb.Capacity{Cores: 1, InstructionSet: "avx2"}})
	for !strings.Contains(good(t, "jobs"), "preparing") {
		time.Sleep(time.Millisecond)
	}
	second := strings.TrimSpace(good(t, "submit", spec, "-q"))
	want := "waits for cores: job " + first + " has them"
	if out := strings.Split(good(t, "jobs"), "\n"); !strings.HasSuffix(out[0], "REASON") || !strings.HasSuffix(out[1], want) || !strings.HasSuffix(out[2], "-") {
		t.Errorf("got %q", out)
	}
	if jobs := asJSON[[]object](t, "jobs"); jobs[0]["message"] != want {
		t.Errorf("got %v", jobs[0])
	}
	var stdout locked
	a := &App{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: io.Discard, Now: time.Now}
	wait(t, s, a, context.Background(), func(string) {
		for !strings.Contains(stdout.String(), "msg=queued job="+second+" name=tiny message=\""+want+"\"") {
			time.Sleep(time.Millisecond)
		}
		good(t, "cancel", second)
	}, "watch", second)
}

// The draws of a job stand beside those asked for as long as these are not there, and beside the
// most that there may be while it goes on beyond them.
func TestDrawsOfAJob(t *testing.T) {
	const on, ended = pb.JobState_JOB_STATE_SAMPLING, pb.JobState_JOB_STATE_CONVERGED
	for _, c := range []struct {
		state                 pb.JobState
		draws, wanted, atMost int32
		want                  string
	}{
		{on, 0, 0, 0, ""}, {on, 0, 340, 960, "0/340"}, {on, 120, 340, 960, "120/340"}, {on, 340, 340, 960, "340 (max 960)"},
		{on, 480, 340, 960, "480 (max 960)"}, {on, 960, 340, 960, "960"}, {ended, 480, 340, 960, "480"}, {ended, 120, 340, 960, "120/340"},
	} {
		p := &pb.Progress{Draws: c.wanted, MaxDraws: c.atMost, Chains: []*pb.ChainProgress{{Chain: 1, Draws: c.draws + 20}, {Chain: 2, Draws: c.draws}}}
		if got := client.DrawsText(&pb.Job{State: c.state, Progress: p}); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
	if got := client.DrawsText(&pb.Job{}); got != "" {
		t.Errorf("a job without progress: %q", got)
	}
}

// The log of a job is what happened to it, the whole message of a failure too; its gradients are
// not among that.
func TestLogsAreEvents(t *testing.T) {
	s := cluster(t)
	spec := write(t, t.TempDir(), "s.yaml", tinySpec)
	id := strings.TrimSpace(good(t, "submit", spec, "-q"))
	s.Log(id, 1, "w", `{"msg":"gradient","chain":1}`)
	var stdout locked
	a := &App{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: io.Discard, Now: time.Now}
	done := make(chan int)
	go func() { done <- a.Execute(context.Background(), []string{"logs", id, "--follow"}) }()
	for !strings.Contains(stdout.String(), "submitted") {
		time.Sleep(time.Millisecond)
	}
	good(t, "pause", id)
	good(t, "resume", id)
	long := strings.Repeat("the data are far away; ", 100) + "the end"
	s.Apply(time.Now(), &state.Fail{Job: id, Message: long})
	if code := <-done; code != 0 {
		t.Errorf("exit %d", code)
	}
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	want := []string{"submitted", "state      paused", "state      queued", "state      failed: " + long}
	if len(lines) != len(want) {
		t.Fatalf("got %q", lines)
	}
	for i, w := range want {
		if !strings.Contains(lines[i], "  "+w) {
			t.Errorf("line %d is %q, want %q", i, lines[i], w)
		}
	}
	if all := good(t, "logs", id); all != stdout.String() {
		t.Errorf("without --follow:\n%s\nwith it:\n%s", all, stdout.String())
	}
	if last := good(t, "logs", id, "--tail", "1"); last != lines[3]+"\n" {
		t.Errorf("the last line: %q", last)
	}
	if e := asJSON[object](t, "logs", id, "--tail", "1"); e["kind"] != "state" || e["text"] != "failed: "+long || e["time"] == nil {
		t.Errorf("got %v", e)
	}
	if out := good(t, "logs", id, "--gradients"); strings.Count(out, "\n") != 1 || !strings.Contains(out, `chain 1  w  {"msg":"gradient"`) {
		t.Errorf("the gradients:\n%s", out)
	}
}

// A follower goes on after the event that it printed last, also when the oldest are dropped.
func TestEventsAfter(t *testing.T) {
	note := func(second int64, text string) *pb.JobNote {
		return &pb.JobNote{Time: &timestamppb.Timestamp{Seconds: second}, Kind: "placed", Text: text}
	}
	all := []*pb.JobNote{note(1, "a"), note(2, "a"), note(2, "b"), note(3, "a")}
	for i := range all {
		if got := eventsAfter(all, note(all[i].Time.Seconds, all[i].Text)); len(got) != len(all)-1-i {
			t.Errorf("after %v: %v", all[i], got)
		}
	}
	if got := eventsAfter(all, note(0, "dropped")); len(got) != len(all) {
		t.Errorf("got %v", got)
	}
}
