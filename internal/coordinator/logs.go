package coordinator

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
	limit   int64 // bytes of all files; the oldest make room
	mu      sync.Mutex
	changed chan struct{}
	total   int64 // bytes of all files
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

func openLogs(dir string, limit int64) (*logs, error) {
	l := &logs{dir: filepath.Join(dir, "logs"), limit: limit, changed: make(chan struct{})}
	if err := os.MkdirAll(l.dir, 0o750); err != nil {
		return nil, err
	}
	files, err := l.files()
	for _, f := range files {
		l.total += f.size
	}
	return l, err
}

// logFile is a file of the log of a job.
type logFile struct {
	name    string
	size    int64
	written time.Time
}

// files returns all files, the one that was written to longest ago first.
func (l *logs) files() (out []logFile, err error) {
	entries, err := os.ReadDir(l.dir)
	for _, e := range entries {
		if st, err := e.Info(); err == nil { // else it is gone
			out = append(out, logFile{e.Name(), st.Size(), st.ModTime()})
		}
	}
	slices.SortFunc(out, func(a, b logFile) int { return cmp.Or(a.written.Compare(b.written), cmp.Compare(a.name, b.name)) })
	return out, err
}

// makeRoom removes the oldest files, but not the one that is written to, until a
// tenth of the limit is free.
func (l *logs) makeRoom(but string) error {
	if l.total <= l.limit {
		return nil
	}
	files, err := l.files()
	if err != nil {
		return err
	}
	for _, f := range files {
		if l.total <= l.limit-l.limit/10 {
			break
		}
		if path := filepath.Join(l.dir, f.name); path != but && os.Remove(path) == nil {
			l.total -= f.size
		}
	}
	return nil
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
		if old, err := os.Stat(l.path(job, ".1")); err == nil {
			l.total -= old.Size()
		}
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
	n, err := f.Write(b.Bytes())
	l.total += int64(n)
	close(l.changed)
	l.changed = make(chan struct{})
	return errors.Join(err, f.Close(), l.makeRoom(path))
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
	for _, generation := range []string{"", ".1"} {
		path := l.path(job, generation)
		if st, err := os.Stat(path); err == nil && os.Remove(path) == nil {
			l.total -= st.Size()
		}
	}
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
	if r.Received != nil && isForwarded(ctx) { // the leader's, so that all copies are the same
		now = r.Received.AsTime()
	}
	for _, text := range r.Lines {
		entries = append(entries, logEntry{Time: now, Chain: r.Chain, Worker: r.Worker, Text: text[:min(len(text), maxLogLine)]})
	}
	if err := c.logs.add(r.Job, entries); err != nil {
		return nil, err
	}
	c.pulses.heard(chainKey{r.Job, int(r.Chain)}, now)
	if c.Node.IsLeader() && c.Peers != nil {
		r.Received = timestamppb.New(now)
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

// Logs sends the log of a job: what this coordinator has of it together with
// what others have, who may have been there when it was not.
func (c *Coordinator) Logs(r *pb.LogsRequest, s grpc.ServerStreamingServer[pb.LogLine]) error {
	ctx := s.Context()
	if _, err := c.Get(ctx, &pb.GetJobRequest{Id: r.Id, Stale: isForwarded(ctx)}); err != nil {
		return err
	}
	own, changed, err := c.logs.read(r.Id, r.Chain)
	if err != nil {
		return err
	}
	all := own
	if !isForwarded(ctx) {
		all = merge(own, c.elsewhere(ctx, r)...)
	}
	if r.Tail > 0 {
		all = all[max(0, len(all)-int(r.Tail)):]
	}
	for sent := len(own); ; {
		for _, e := range all {
			if err := s.Send(&pb.LogLine{Time: timestamppb.New(e.Time), Chain: e.Chain, Worker: e.Worker, Text: e.Text}); err != nil {
				return err
			}
		}
		if !r.Follow {
			return nil
		}
		j, err := c.Get(ctx, &pb.GetJobRequest{Id: r.Id, Stale: true})
		if err != nil {
			return err
		}
		if !ended(j.State) {
			select {
			case <-changed:
			case <-time.After(time.Second):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if own, changed, err = c.logs.read(r.Id, r.Chain); err != nil {
			return err
		}
		all = own[min(sent, len(own)):] // fewer than before: the oldest were dropped
		if sent = len(own); ended(j.State) && len(all) == 0 {
			return nil
		}
	}
}

// elsewhere returns what other coordinators have of a log, as far as they answer
// in time.
func (c *Coordinator) elsewhere(ctx context.Context, r *pb.LogsRequest) [][]logEntry {
	if c.Peers == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(onward(ctx), shareLogs)
	defer cancel()
	peers := c.Peers()
	out := make([][]logEntry, len(peers))
	var wg sync.WaitGroup
	for i, address := range peers {
		conn, err := c.peers.Conn(address)
		if err != nil {
			continue
		}
		wg.Go(func() {
			lines, err := pb.NewJobsClient(conn).Logs(ctx, &pb.LogsRequest{Id: r.Id, Chain: r.Chain})
			for err == nil {
				var l *pb.LogLine
				if l, err = lines.Recv(); err == nil {
					out[i] = append(out[i], logEntry{Time: l.Time.AsTime(), Chain: l.Chain, Worker: l.Worker, Text: l.Text})
				}
			}
		})
	}
	wg.Wait()
	return out
}

// merge returns the entries of several copies of a log in the order of time,
// each as often as the copy that has it most often.
func merge(own []logEntry, others ...[]logEntry) []logEntry {
	out := slices.Clone(own)
	have := map[logEntry]int{}
	for _, e := range own {
		have[e.key()]++
	}
	for _, other := range others {
		seen := map[logEntry]int{}
		for _, e := range other {
			k := e.key()
			if seen[k]++; seen[k] > have[k] {
				have[k]++
				out = append(out, e)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b logEntry) int { return a.Time.Compare(b.Time) })
	return out
}

// key is the entry with its time in a form that compares.
func (e logEntry) key() logEntry {
	e.Time = e.Time.UTC().Round(0)
	return e
}

func ended(s pb.JobState) bool { return s >= pb.JobState_JOB_STATE_CONVERGED }
