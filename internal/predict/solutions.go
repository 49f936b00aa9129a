package predict

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ulisse-gp/ulisse/internal/cmvp"
	"github.com/ulisse-gp/ulisse/internal/solve"
	"github.com/ulisse-gp/ulisse/internal/version"
)

// Solutions keeps the K⁻¹y of posteriors in a folder, one file for each, so that
// the next predictor need not solve for them. What cannot be read or written is
// computed anew: nothing is lost but time. A nil *Solutions keeps nothing.
type Solutions struct {
	Dir  string
	Most int64 // bytes of files, beyond which those not used longest are removed; 0 for no bound
}

const solutionsSuffix = ".solutions"

// solutionsKey returns the name of what K⁻¹y is a function of: data, model,
// draws, and how they are solved for.
func (p *Predictor) solutionsKey() string {
	h := sha256.New()
	isa, _ := cmvp.ISA()
	head, _ := json.Marshal([]any{version.Version, isa, p.Problem.Covariance.String(), fmt.Sprintf("%s%v", p.Problem.Likelihood.Name(), p.Problem.Likelihood), firstSweeps, nextSweeps, len(p.Problem.Y), p.Problem.Inputs.Dim(),
		p.Seed, p.Kind, p.Rank, p.MaxIter, p.Mixed, meanTolerance, rankFactor})
	h.Write(head)
	var b [8]byte
	put := func(x []float64) {
		for _, v := range x {
			binary.LittleEndian.PutUint64(b[:], math.Float64bits(v))
			h.Write(b[:])
		}
	}
	for i := range p.Problem.Y {
		put(p.Problem.Inputs.Row(i))
	}
	put(p.Problem.Y)
	put(p.Problem.State)
	for _, psi := range p.Draws {
		put(psi)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// load returns what was kept under a name, nil if there is nothing whole.
func (s *Solutions) load(key string, columns, n int) (found [][]float64, unconverged int) {
	if s == nil {
		return nil, 0
	}
	path := filepath.Join(s.Dir, key+solutionsSuffix)
	text, err := os.ReadFile(path)
	if err != nil || len(text) != 8*(1+columns*n)+sha256.Size {
		return nil, 0
	}
	body, sum := text[:len(text)-sha256.Size], text[len(text)-sha256.Size:]
	if got := sha256.Sum256(body); !bytes.Equal(got[:], sum) {
		return nil, 0
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now) // it is of use: keep it longer
	out := solve.Columns(n, columns)
	for t := range out {
		for i := range out[t] {
			out[t][i] = math.Float64frombits(binary.LittleEndian.Uint64(body[8*(1+t*n+i):]))
		}
	}
	return out, int(binary.LittleEndian.Uint64(body))
}

// save keeps solutions under a name: the number of unconverged solves, then the
// solutions, then the SHA-256 of both.
func (s *Solutions) save(key string, alphas [][]float64, unconverged int) {
	if s == nil || os.MkdirAll(s.Dir, 0o755) != nil {
		return
	}
	body := binary.LittleEndian.AppendUint64(nil, uint64(unconverged))
	for _, a := range alphas {
		for _, v := range a {
			body = binary.LittleEndian.AppendUint64(body, math.Float64bits(v))
		}
	}
	sum := sha256.Sum256(body)
	f, err := os.CreateTemp(s.Dir, "."+key+".*")
	if err != nil {
		return
	}
	_, err = f.Write(append(body, sum[:]...))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(s.Dir, key+solutionsSuffix))
	}
	if err != nil {
		os.Remove(f.Name())
	}
	s.evict()
}

// evict removes the files not used longest, beyond the bound.
func (s *Solutions) evict() {
	if s.Most <= 0 {
		return
	}
	entries, _ := os.ReadDir(s.Dir)
	var files []fs.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), solutionsSuffix) {
			files = append(files, info)
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	var total int64
	for _, f := range files {
		if total += f.Size(); total > s.Most {
			os.Remove(filepath.Join(s.Dir, f.Name()))
		}
	}
}
