package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/sampler"
	"github.com/ulisse-gp/ulisse/internal/version"
)

// Record is all that is known of a run: what its summary, its files and its
// exports are made of, and what result.json in its folder holds.
type Record struct {
	SpecText       string          `json:"spec"` // YAML, with every default
	Data           dataset.Info    `json:"data"`
	Run            *chains.Run     `json:"run"`
	WallSeconds    float64         `json:"wall_seconds"`
	InstructionSet string          `json:"instruction_set"`
	Origin         Origin          `json:"origin"`
	Cache          *cmvp.CachePlan `json:"cache,omitempty"` // nil if that is off, or not known
	DrawsSHA256    string          `json:"draws_sha256"`
	Spec           *job.Spec       `json:"-"`
	Model          posterior.Model `json:"-"`
}

// Origin says where and by what a run was computed.
type Origin struct {
	Version string    `json:"version"`           // of the program that wrote the record
	Host    string    `json:"host,omitempty"`    // of ulisse run
	Threads int       `json:"threads,omitempty"` // of ulisse run
	Job     string    `json:"job,omitempty"`     // its id in a cluster
	Workers []string  `json:"workers,omitempty"` // of a cluster, as far as is known; sorted
	Ended   time.Time `json:"ended,omitzero"`
}

// Saw notes a worker that had a part in the run.
func (o *Origin) Saw(worker string) {
	if i, there := slices.BinarySearch(o.Workers, worker); worker != "" && !there {
		o.Workers = slices.Insert(o.Workers, i, worker)
	}
}

// recordFile is the name of a record in the folder of a run.
const recordFile = "result.json"

// Open makes a record that was filled in or read usable: it reads the
// specification, and checks that the parts fit.
func (r *Record) Open() error {
	if r.Run == nil || r.Run.Prepared == nil || len(r.Run.Chains) == 0 {
		return errors.New("there are no draws yet")
	}
	if err := r.Data.Check(); err != nil {
		return err
	}
	_, err := sampler.ByName(r.Run.Plan.Method)
	if err != nil {
		return err
	}
	if r.Spec, err = job.Parse(strings.NewReader(r.SpecText), "the specification"); err != nil {
		return err
	}
	if r.Model, err = r.Spec.KernelModel(r.Data.D()); err != nil {
		return err
	}
	want := len(r.Model.Names())
	if len(r.Run.Plan.Names) != want {
		return fmt.Errorf("%d parameters, where the model has %d", len(r.Run.Plan.Names), want)
	}
	for c, ch := range r.Run.Chains {
		for t, psi := range ch.Draws {
			if len(psi) != want {
				return fmt.Errorf("draw %d of chain %d has %d numbers, where the model has %d parameters", t+1, c+1, len(psi), want)
			}
		}
	}
	if r.Origin.Version == "" {
		r.Origin.Version = version.Version
	}
	return nil
}

// Summary returns the summary of the run.
func (r *Record) Summary() *Summary {
	sum := Summarize(r.Spec, &r.Data, r.Model, r.Run, time.Duration(r.WallSeconds*float64(time.Second)), r.InstructionSet)
	sum.Cache = r.Cache
	return sum
}

// write writes the record without what is of use to the sampler only.
func (r *Record) write(w io.Writer) error {
	out := *r
	out.Run = results(r.Run)
	out.DrawsSHA256 = DrawsSHA256(out.Run)
	return json.NewEncoder(w).Encode(&out)
}

// results returns a run without what is of use to the sampler only.
func results(r *chains.Run) *chains.Run {
	if r == nil {
		return nil
	}
	out := *r
	out.Chains = make([]chains.Chain, len(r.Chains))
	for c, ch := range r.Chains {
		ch.Beyond, ch.Windows = nil, nil
		out.Chains[c] = ch
	}
	out.Certificate = results(r.Certificate)
	return &out
}

// IsFolder reports whether a path is the folder of a run that has results.
func IsFolder(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, recordFile))
	return err == nil && info.Mode().IsRegular()
}

// ReadFolder returns the record of the run in a folder, and refuses one whose
// draws are not those that were written.
func ReadFolder(dir string) (*Record, error) {
	f, err := os.Open(filepath.Join(dir, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there are no results in %s (no %s): its run has not ended, or an earlier version wrote it; 'ulisse run --resume %s' brings it to its end and writes them: %w", dir, recordFile, dir, err)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := &Record{}
	if err = json.NewDecoder(f).Decode(r); err == nil {
		err = r.Open()
	}
	if err == nil && r.DrawsSHA256 != DrawsSHA256(r.Run) {
		err = errors.New("the draws are not those of its draws_sha256: the file was changed or is damaged")
	}
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", f.Name(), err)
	}
	return r, nil
}
