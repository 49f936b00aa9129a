package report

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/job"
	"github.com/ulisse-gp/ulisse/internal/loo"
	"github.com/ulisse-gp/ulisse/internal/posterior"
	"github.com/ulisse-gp/ulisse/internal/sampler"
	"github.com/ulisse-gp/ulisse/internal/sealed"
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
	// Fit, of a point estimate, is that: the run then has one draw, which is the estimate.
	Fit     *Fit            `json:"fit,omitempty"`
	Spec    *job.Spec       `json:"-"`
	Loo     *loo.Result     `json:"-"` // for the report, by whoever has computed it; nil for none
	Check   *Check          `json:"-"` // likewise
	Effects []Effect        `json:"-"` // likewise
	Model   posterior.Model `json:"-"`
}

// Origin says where and by what a run was computed.
type Origin struct {
	Version string    `json:"version"`           // of the program that wrote the record
	Host    string    `json:"host,omitempty"`    // of ulisse run
	Threads int       `json:"threads,omitempty"` // of ulisse run
	Job     string    `json:"job,omitempty"`     // its id in a cluster
	Workers []string  `json:"workers,omitempty"` // of a cluster, as far as is known; sorted
	Ended   time.Time `json:"ended,omitzero"`
	// State is how a run that has not come to its end stands: sampling, interrupted,
	// or failed and why.
	State string `json:"state,omitempty"`
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
// specification, checks that the parts fit, and of chains that are not equally far
// keeps the draws that all have.
func (r *Record) Open() error {
	if r.Run == nil || r.Run.Prepared == nil || len(r.Run.Chains) == 0 {
		return errors.New("there are no draws yet")
	}
	r.Run = common(r.Run)
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
	if r.Model, err = r.Spec.KernelModel(&r.Data); err != nil {
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
	if r.Fit != nil {
		return r.fitSummary()
	}
	sum := Summarize(r.Spec, &r.Data, r.Model, r.Run, time.Duration(r.WallSeconds*float64(time.Second)), r.InstructionSet)
	sum.Cache = r.Cache
	if r.Run.Stopped == nil {
		sum.State = r.Origin.State
	}
	return sum
}

// common returns a run at the draws that all of its chains have: chains at work are not
// equally far.
func common(r *chains.Run) *chains.Run {
	out := *r
	out.Chains = slices.Clone(r.Chains)
	for c := range out.Chains {
		out.Chains[c].Draws = r.Chains[c].Draws[:r.MinDraws()]
	}
	return &out
}

// provisionalPoints is the number of points that predictions are averaged over where there
// are no draws: they are independent, so that as many tell what draws could.
const provisionalPoints = 100

// Points returns what predictions from a run are averaged over: its draws, chain by chain, as
// many of each as all have. Before there are any they are what a provisional answer is made of,
// draws of the warm-up or of the Laplace approximation at the mode, and provisional says which;
// else it is empty.
func Points(r *chains.Run) (draws [][][]float64, provisional string, err error) {
	if r.MinDraws() == 0 && r.Prepared != nil {
		if warm := warmed(r); warm != nil {
			return warm, warmNote(warm), nil
		}
		points, err := laplace(r, provisionalPoints)
		return [][][]float64{points}, "the normal approximation at the mode", err
	}
	for _, c := range common(r).Chains {
		draws = append(draws, c.Draws)
	}
	return draws, "", nil
}

// write writes the record without what is of use to the sampler only.
func (r *Record) write(w io.Writer) error {
	out := *r
	out.Run = results(r.Run)
	out.DrawsSHA256 = DrawsSHA256(out.Run)
	text, err := sealed.Marshal(&out)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// results returns a run without what is of use to the sampler only.
func results(r *chains.Run) *chains.Run {
	if r == nil {
		return nil
	}
	out := *r
	out.Chains = make([]chains.Chain, len(r.Chains))
	for c, ch := range r.Chains {
		ch.Beyond = nil
		if r.MinDraws() > 0 { // else they are all that is known
			ch.Windows = nil
		}
		out.Chains[c] = ch
	}
	out.Certificate = results(r.Certificate)
	return &out
}

// IsFolder reports whether a path is the folder of a run, ended or not.
func IsFolder(dir string) bool {
	for _, name := range []string{recordFile, "spec.yaml"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode().IsRegular() {
			return true
		}
	}
	return false
}

// WriteSoFar writes the record of a run that goes on into its folder, for those who look at
// it meanwhile.
func (r *Record) WriteSoFar(dir string) error {
	return atomicfile.Write(filepath.Join(dir, recordFile), 0o644, r.write)
}

// ReadFolder returns the record of the run in a folder, and refuses one whose
// draws are not those that were written.
func ReadFolder(dir string) (*Record, error) {
	path := filepath.Join(dir, recordFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err != nil && !IsFolder(dir) {
		return nil, noRecord(dir)
	}
	if err != nil {
		return nil, err
	}
	r := &Record{}
	if err = sealed.Unmarshal(text, r); err == nil {
		err = r.Open()
	}
	if err == nil && r.DrawsSHA256 != DrawsSHA256(r.Run) {
		err = errors.New("the draws are not those of its draws_sha256: the file was changed or is damaged")
	}
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", path, err)
	}
	return r, nil
}

// noRecord says why there is nothing to read in a folder.
func noRecord(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no folder %s", dir)
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is a file: give the folder of a run", dir)
	case !IsFolder(dir):
		return fmt.Errorf("there are no results in %s: it is not the folder of a run", dir)
	}
	return fmt.Errorf("there are no results in %s yet: its run has not found the mode; 'ulisse run --resume %s' continues it", dir, dir)
}
