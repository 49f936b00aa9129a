package local

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
	"github.com/ulisse-gp/ulisse/internal/chains"
)

// journal is a file of a run's events, one JSON object a line, each on disk
// before it counts. Replaying it rebuilds the run.
type journal struct {
	f       *os.File
	elapsed time.Duration // at the last entry
}

// entry is a line of the journal.
type entry struct {
	Elapsed float64      `json:"elapsed"` // seconds at work, over all resumptions
	Event   chains.Event `json:"event"`
}

// openJournal opens or creates the journal and replays it into the run. A last
// line that was cut short by a crash is dropped: its event never counted.
func openJournal(path string, run *chains.Run) (*journal, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	j := &journal{f: f}
	good, err := j.replay(run)
	if err == nil {
		err = f.Truncate(good)
	}
	if err == nil {
		_, err = f.Seek(good, io.SeekStart)
	}
	if err == nil {
		err = atomicfile.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return j, nil
}

// replay applies all whole lines and returns where they end.
func (j *journal) replay(run *chains.Run) (good int64, err error) {
	r := bufio.NewReader(j.f)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if err == io.EOF {
			return good, nil
		}
		if err != nil {
			return 0, err
		}
		var e entry
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&e); err != nil {
			return 0, fmt.Errorf("line %d: %w", n, err)
		}
		if err := run.Apply(e.Event); err != nil {
			return 0, fmt.Errorf("line %d: %w", n, err)
		}
		j.elapsed = time.Duration(e.Elapsed * float64(time.Second))
		good += int64(len(line))
	}
}

// append writes an event to disk.
func (j *journal) append(e chains.Event, elapsed time.Duration) error {
	line, err := json.Marshal(entry{Elapsed: elapsed.Seconds(), Event: e})
	if err != nil {
		return err
	}
	if _, err := j.f.Write(append(line, '\n')); err != nil {
		return err
	}
	return j.f.Sync()
}

func (j *journal) close() error { return j.f.Close() }
