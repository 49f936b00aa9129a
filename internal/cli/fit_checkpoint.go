package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
	"github.com/ulisse-gp/ulisse/internal/fit"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/report"
	"github.com/ulisse-gp/ulisse/internal/version"
)

// fitCheckpoint is all that a fit from minibatches needs to go on with the same bits, in a file beside the folder that it will write.
type fitCheckpoint struct {
	Rounding          string // of the program
	Spec              string // with the absolute path of its data
	Data              string // their SHA-256
	Method, Objective string
	Iterations, Batch int
	Seconds           float64 // that the fit has taken
	State             fit.State
}

// checkpointPath returns the file of the fit that writes a folder.
func checkpointPath(dir string) string { return filepath.Clean(dir) + ".checkpoint" }

// checkpointMagic begins the file; what follows are the SHA-256 of the rest and, as gob, the checkpoint.
const checkpointMagic = "ulisse fit 1\n"

// write writes the checkpoint: whole, or what was there stays.
func (c *fitCheckpoint) write(path string) error {
	var body bytes.Buffer
	if err := gob.NewEncoder(&body).Encode(c); err != nil {
		return err
	}
	sum := sha256.Sum256(body.Bytes())
	return atomicfile.Write(path, 0o644, func(w io.Writer) error {
		_, err := w.Write(slices.Concat([]byte(checkpointMagic), sum[:], body.Bytes()))
		return err
	})
}

// readCheckpoint reads what write has written. The error is one sentence.
func readCheckpoint(path string) (*fitCheckpoint, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	body, ok := bytes.CutPrefix(text, []byte(checkpointMagic))
	if !ok || len(body) < sha256.Size {
		return nil, fmt.Errorf("%s is no checkpoint of a fit, or one of another version of ulisse", path)
	}
	if sum := sha256.Sum256(body[sha256.Size:]); !bytes.Equal(sum[:], body[:sha256.Size]) {
		return nil, fmt.Errorf("the checkpoint %s was changed or is damaged: remove it and begin the fit anew", path)
	}
	var c fitCheckpoint
	if err := gob.NewDecoder(bytes.NewReader(body[sha256.Size:])).Decode(&c); err != nil {
		return nil, fmt.Errorf("the checkpoint %s cannot be read: %w", path, err)
	}
	return &c, nil
}

// fitKeeper writes checkpoints of a fit.
type fitKeeper struct {
	fitCheckpoint // but for the state
	path          string
	every         time.Duration
	last, began   time.Time
}

// keeper returns what keeps the states of a fit whose results go into a folder, nil if it has none to go on from: it is not from minibatches, or its table came through standard input.
func (f *fitFlags) keeper(j *runJob, dir string, began time.Time) (*fitKeeper, error) {
	if f.checkpoint == 0 || j.piped != nil || !j.spec.Model.Features() && f.method != adam {
		return nil, nil
	}
	text, err := j.spec.YAML()
	if err != nil {
		return nil, err
	}
	c := fitCheckpoint{Rounding: version.Rounding(), Spec: string(text), Data: j.data.SHA256, Method: f.method, Objective: f.objective, Iterations: f.iterations, Batch: f.batch}
	return &fitKeeper{fitCheckpoint: c, path: checkpointPath(dir), every: f.checkpoint, last: time.Now(), began: began}, nil
}

// Due reports whether the last checkpoint is old.
func (k *fitKeeper) Due() bool { return time.Since(k.last) >= k.every }

// Keep writes a checkpoint.
func (k *fitKeeper) Keep(s *fit.State) error {
	c := k.fitCheckpoint
	c.State, c.Seconds = *s, time.Since(k.began).Seconds()
	if err := os.MkdirAll(filepath.Dir(k.path), 0o755); err != nil {
		return err
	}
	err := c.write(k.path)
	k.last = time.Now()
	return err
}

// withResume are the flags that have a meaning where a fit goes on.
var withResume = []string{"resume", "threads", "quiet", "json", "checkpoint", "workers", "tls-cert", "tls-key", "tls-ca", "tls-crl"}

// resumed returns the specification of the fit to go on with, whose flags f has from then on.
func (f *fitFlags) resumed(c *cobra.Command, args []string) (*job.Spec, error) {
	var others []string
	c.LocalFlags().VisitAll(func(fl *pflag.Flag) {
		if fl.Changed && !slices.Contains(withResume, fl.Name) {
			others = append(others, "--"+fl.Name)
		}
	})
	if len(args) > 0 || len(others) > 0 {
		return nil, fmt.Errorf("--resume goes on with what the checkpoint says: leave out %s", strings.Join(append(slices.Clone(args), others...), ", "))
	}
	path := checkpointPath(f.resume)
	if report.IsFit(f.resume) {
		return nil, errors.Join(fmt.Errorf("the fit in %s has come to its end: there is nothing to go on with", f.resume), removed(path))
	}
	cp, err := readCheckpoint(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no checkpoint %s: fits from minibatches (svgp with --method adam, random-features, deep) leave one every --checkpoint, unless they read standard input", path)
	case err != nil:
		return nil, err
	case cp.Rounding != version.Rounding():
		return nil, fmt.Errorf("the fit began with the rounding of %s and this program has that of %s, which leads elsewhere: go on where it began, or remove %s and begin anew", cp.Rounding, version.Rounding(), path)
	}
	f.from, f.method, f.objective, f.iterations, f.batch = cp, cp.Method, cp.Objective, cp.Iterations, cp.Batch
	return job.ParseString(cp.Spec)
}

// removed removes a checkpoint, if there is one.
func removed(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// beginnable returns an error if a folder, or the checkpoint beside it, is in the way of the fit.
func (f *fitFlags) beginnable(dir string) error {
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("the folder %s is not empty: choose another with --out", dir)
	}
	if _, err := os.Stat(checkpointPath(dir)); err == nil && f.from == nil {
		return fmt.Errorf("a fit that was interrupted has left %s: go on with 'ulisse fit --resume %s', remove it, or choose another folder with --out", checkpointPath(dir), dir)
	}
	return nil
}

// sameData returns an error if the data are not those that the fit to go on with began with.
func (f *fitFlags) sameData(j *runJob) error {
	if f.from != nil && f.from.Data != j.data.SHA256 {
		return fmt.Errorf("the data at %s are not those that the fit began with", j.spec.Data.Path)
	}
	return nil
}
