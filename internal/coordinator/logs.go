package coordinator

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/state"
)

// logs keeps the log lines of jobs in files, two generations of them for each
// job, outside the replicated state: whoever leads takes the lines, keeps them
// and passes them on to the other coordinators, as far as they can be reached.
type logs struct {
	dir     string
	mu      sync.Mutex
	changed chan struct{}
}

// Limits of logs.
const (
	logBytes    = 8 << 20 // of a generation
	maxLogLine  = 64 << 10
	maxLogLines = 10_000
	shareLogs   = 2 * time.Second
)

// logEntry is a line in a file.
type logEntry struct {
	Time   time.Time `json:"time"`
	Chain  int32     `json:"chain"`
	Worker string    `json:"worker"`
	Text   string    `json:"text"`
}

var idForm = regexp.MustCompile(`^[a-z0-9]{1,64}$`)

func openLogs(dir string) (*logs, error) {
	dir = filepath.Join(dir, "logs")
	return &logs{dir: dir, changed: make(chan struct{})}, os.MkdirAll(dir, 0o750)
}

func (l *logs) close() error { return nil }

func (l *logs) path(job string, generation string) string {
	return filepath.Join(l.dir, job+".jsonl"+generation)
}

// add appends lines.
func (l *logs) add(job string, entries []logEntry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	path := l.path(job, "")
	if st, err := os.Stat(path); err == nil && st.Size() > logBytes {
		if err := os.Rename(path, l.path(job, ".1")); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, e := range entries {
		if err := enc.Encode(e); err != nil {
			f.Close()
			return err
		}
	}
	_, err = f.Write(b.Bytes())
	close(l.changed)
	l.changed = make(chan struct{})
	return errors.Join(err, f.Close())
}

// read returns the lines of a job.
func (l *logs) read(job string, chain int32) (entries []logEntry, changed <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, generation := range []string{".1", ""} {
		f, err := os.Open(l.path(job, generation))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		sc := bufio.NewScanner(f)
		sc.Buffer(nil, 2*maxLogLine)
		for sc.Scan() {
			var e logEntry
			if json.Unmarshal(sc.Bytes(), &e) == nil && (chain == 0 || e.Chain == chain) {
				entries = append(entries, e)
			}
		}
		f.Close()
	}
	return entries, l.changed, nil
}

func (l *logs) remove(job string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	os.Remove(l.path(job, ""))
	os.Remove(l.path(job, ".1"))
}

// Log takes log lines from a worker, or from the leader that did.
func (c workersServer) Log(ctx context.Context, r *pb.LogRequest) (*pb.LogResponse, error) {
	if !idForm.MatchString(r.Job) {
		return nil, badField("job", "this is not a job's id")
	}
	if len(r.Lines) > maxLogLines {
		return nil, badField("lines", "too many lines at once")
	}
	err := c.Node.View(func(tx *bbolt.Tx) error {
		_, err := state.GetJob(tx, r.Job)
		return err
	})
	if err != nil {
		return nil, err
	}
	var entries []logEntry
	now := time.Now().UTC()
	for _, text := range r.Lines {
		entries = append(entries, logEntry{Time: now, Chain: r.Chain, Worker: r.Worker, Text: text[:min(len(text), maxLogLine)]})
	}
	if err := c.logs.add(r.Job, entries); err != nil {
		return nil, err
	}
	c.pulses.heard(chainKey{r.Job, int(r.Chain)}, now)
	if c.Node.IsLeader() && c.Peers != nil {
		for _, address := range c.Peers() {
			if conn, err := c.peers.Conn(address); err == nil {
				go func() { // lines that do not arrive are missed by nobody but readers there
					ctx, cancel := context.WithTimeout(forwarded(context.Background()), shareLogs)
					defer cancel()
					_, _ = pb.NewWorkersClient(conn).Log(ctx, r)
				}()
			}
		}
	}
	return &pb.LogResponse{}, nil
}

// Logs sends the log of a job.
func (c *Coordinator) Logs(r *pb.LogsRequest, s grpc.ServerStreamingServer[pb.LogLine]) error {
	ctx := s.Context()
	if _, err := c.Get(ctx, &pb.GetJobRequest{Id: r.Id}); err != nil {
		return err
	}
	sent := 0
	if r.Tail > 0 {
		sent = -int(r.Tail)
	}
	for {
		entries, changed, err := c.logs.read(r.Id, r.Chain)
		if err != nil {
			return err
		}
		if sent < 0 {
			sent = max(0, len(entries)+sent)
		}
		if sent > len(entries) { // the oldest were dropped
			sent = len(entries)
		}
		for _, e := range entries[sent:] {
			if err := s.Send(&pb.LogLine{Time: timestamppb.New(e.Time), Chain: e.Chain, Worker: e.Worker, Text: e.Text}); err != nil {
				return err
			}
		}
		sent = len(entries)
		if !r.Follow {
			return nil
		}
		j, err := c.Get(ctx, &pb.GetJobRequest{Id: r.Id, Stale: true})
		if err != nil || ended(j.State) {
			return err
		}
		select {
		case <-changed:
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func ended(s pb.JobState) bool { return s >= pb.JobState_JOB_STATE_CONVERGED }
