package predict

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	"github.com/ulisse-gp/ulisse/internal/solve"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// Bounds on what a request over the wire may ask for.
const (
	MaxRows      = 1024
	MaxQuantiles = 50
	MaxDraws     = 1000
	MaxNumbers   = 3 << 19 // of paths and of a joint covariance
)

// CheckRequest returns an error, with the field at fault, unless a request can be
// answered for data of this description.
func CheckRequest(r *pb.PredictRequest, info *dataset.Info) (field string, err error) {
	names := info.InputNames
	d, o := len(names), options(r)
	switch {
	case len(r.Inputs) > 0 && !slices.Equal(r.Inputs, names):
		return "inputs", fmt.Errorf("the inputs of the rows are %s, those of the job's data %s: send them in this order", strings.Join(r.Inputs, ", "), strings.Join(names, ", "))
	case r.Kept < 0:
		return "kept", fmt.Errorf("%d: give a number of draws of each chain, or 0 for all", r.Kept)
	case len(r.Rows) == 0 || len(r.Rows) > MaxRows:
		return "rows", fmt.Errorf("%d rows: send 1 to %d at a time", len(r.Rows), MaxRows)
	case len(r.Targets) > 0 && len(r.Targets) != len(r.Rows):
		return "targets", fmt.Errorf("%d targets for %d rows: send all or none", len(r.Targets), len(r.Rows))
	case len(r.Quantiles) > MaxQuantiles:
		return "quantiles", fmt.Errorf("%d quantiles, more than %d", len(r.Quantiles), MaxQuantiles)
	case r.Paths < 0:
		return "paths", fmt.Errorf("%d paths: ask for a positive number", r.Paths)
	case r.Paths > 0 && r.Terms:
		return "terms", errors.New("there are paths in place of predictions: ask for the terms without them")
	case r.Paths > 0 && (r.Gradient || r.GradientSd):
		return "gradient", errors.New("there are paths in place of predictions: ask for the gradient without them")
	case jointNumbers(r) > MaxNumbers:
		return "paths", fmt.Errorf("%d rows, with %d paths, are more numbers than a cluster's answer has room for: ask for fewer, or fetch the results (ulisse results) and predict from their folder", len(r.Rows), r.Paths)
	case r.Draws < 0 || r.Draws > MaxDraws:
		return "draws", fmt.Errorf("%d draws: average over 1 to %d, or 0 for as many as are independent", r.Draws, MaxDraws)
	}
	if err := o.Check(); err != nil {
		return "variance", err
	}
	for i, p := range r.Rows {
		if len(p.GetInputs()) != d {
			return "rows", fmt.Errorf("row %d has %d inputs, the job's data have %d", i+1, len(p.GetInputs()), d)
		}
		if (p.Noise == nil) != (r.Rows[0].Noise == nil) {
			return "rows", fmt.Errorf("the noise is given of some rows, not of row %d: give it of all or none", i+1)
		}
		for _, x := range p.Inputs {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				return "rows", fmt.Errorf("row %d has an input that is not finite", i+1)
			}
		}
		switch o := p.Offset; {
		case o != 0 && info.Offset == "":
			return "rows", fmt.Errorf("row %d has an offset, and the job's data have none", i+1)
		case math.IsNaN(o) || math.IsInf(o, 0):
			return "rows", fmt.Errorf("row %d has an offset that is not finite", i+1)
		}
		if err := info.CheckRow(p.Inputs); err != nil {
			return "rows", fmt.Errorf("row %d: %w", i+1, err)
		}
	}
	for i, y := range r.Targets {
		if math.IsInf(y, 0) { // NaN is one that is not known
			return "targets", fmt.Errorf("the target of row %d is infinite", i+1)
		}
	}
	for _, p := range r.Quantiles {
		if !(p > 0 && p < 1) {
			return "quantiles", fmt.Errorf("%g is not a probability between 0 and 1", p)
		}
	}
	return "", nil
}

// jointNumbers returns how many numbers the joint distribution and the gradients have that a request asks for.
func jointNumbers(r *pb.PredictRequest) int {
	each := int(r.Paths)
	if r.Covariance {
		each += len(r.Rows)
	}
	if r.Gradient || r.GradientSd {
		each += 2 * len(r.Rows[0].GetInputs())
	}
	return each * len(r.Rows)
}

// Fits returns an error if an answer would have more numbers than there is room for on the wire: paths of several latent functions have more than
// CheckRequest can know of.
func (p *Predictor) Fits(r Request, o Options) error {
	if l := p.telling(); l != nil && o.Latent && r.Paths*len(r.X)*l.Functions() > MaxNumbers {
		return fmt.Errorf("%d paths of %d functions at %d rows are more numbers than a cluster's answer has room for: ask for fewer, or fetch the results (ulisse results) and predict from their folder", r.Paths, l.Functions(), len(r.X))
	}
	return nil
}

func options(r *pb.PredictRequest) Options {
	return Options{Tolerance: r.Tolerance, Latent: r.Latent, Variance: Variance(r.Variance)}
}

// Decode returns what a request that was checked asks for.
func Decode(r *pb.PredictRequest) (Request, Options) {
	out := Request{Targets: r.Targets, Probs: r.Quantiles, Covariance: r.Covariance, Paths: int(r.Paths), Seed: r.Seed, Gradient: r.Gradient || r.GradientSd, GradientSD: r.GradientSd, Terms: r.Terms}
	if len(r.Targets) == 0 {
		out.Targets = nil
	}
	for _, p := range r.Rows {
		out.X = append(out.X, p.Inputs)
		out.Offset = append(out.Offset, p.Offset)
		if n := p.Noise; n != nil {
			out.Noise = append(out.Noise, dataset.NoiseRow{Known: n.Known, Weight: cmp.Or(n.Weight, 1), Level: n.Level})
		}
	}
	return out, options(r)
}

// Encode returns a request as it travels.
func Encode(job string, r Request, o Options, draws int) *pb.PredictRequest {
	out := &pb.PredictRequest{Id: job, Targets: r.Targets, Quantiles: r.Probs, Latent: o.Latent, Draws: int32(draws), Variance: string(o.Variance),
		Tolerance: o.Tolerance, Progress: o.Progress != nil, Covariance: r.Covariance, Paths: int32(r.Paths), Seed: r.Seed, Gradient: r.Gradient, GradientSd: r.GradientSD, Terms: r.Terms}
	for i, x := range r.X {
		p := &pb.Point{Inputs: x}
		if r.Offset != nil {
			p.Offset = r.Offset[i]
		}
		if r.Noise != nil {
			p.Noise = &pb.RowNoise{Known: r.Noise[i].Known, Weight: r.Noise[i].Weight, Level: r.Noise[i].Level}
		}
		out.Rows = append(out.Rows, p)
	}
	return out
}

// Answer returns predictions as they travel.
func Answer(rows []Row, s Stats, draws [][]float64) *pb.PredictResponse {
	out := &pb.PredictResponse{DrawsSha256: DrawsSHA256(draws), Stats: &pb.PredictStats{Draws: int32(s.Draws), Rows: int64(s.Rows), Solves: int64(s.Solves),
		Iterations: int64(s.Iterations), Unconverged: int64(s.Unconverged), MeansUnconverged: int64(s.MeansUnconverged), Clipped: int64(s.Clipped),
		Bound: s.Bound, SurfaceError: s.SurfaceError, Jitter: s.Jitter}}
	for _, r := range rows {
		p := &pb.PredictedRow{Mean: r.Mean, Sd: r.SD, Quantiles: r.Quantiles, Covariance: r.Covariance, Paths: r.Paths, Gradient: r.Gradient, GradientSd: r.GradientSD}
		for _, t := range r.Terms {
			p.Terms = append(p.Terms, &pb.PredictedTerm{Name: t.Name, Mean: t.Mean, Sd: t.SD})
		}
		for _, f := range r.Functions {
			p.Functions = append(p.Functions, &pb.PredictedTerm{Name: f.Name, Mean: f.Mean, Sd: f.SD})
		}
		for _, c := range r.Classes {
			p.Classes = append(p.Classes, &pb.PredictedClass{Name: c.Name, Probability: c.Probability})
		}
		if !math.IsNaN(r.Target) {
			p.LogDensity, p.Crps, p.Pit = &r.LogDensity, &r.CRPS, &r.PIT
		}
		out.Rows = append(out.Rows, p)
	}
	return out
}

// Answered returns the predictions of an answer to a request.
func Answered(m *pb.PredictResponse, r Request) ([]Row, Stats, error) {
	if len(m.Rows) != len(r.X) {
		return nil, Stats{}, fmt.Errorf("%d rows came back of %d", len(m.Rows), len(r.X))
	}
	var rows []Row
	nan := math.NaN()
	for i, p := range m.Rows {
		row := Row{Mean: p.Mean, SD: p.Sd, Quantiles: p.Quantiles, Target: nan, LogDensity: nan, CRPS: nan, PIT: nan, Covariance: p.Covariance, Paths: p.Paths, Gradient: p.Gradient, GradientSD: p.GradientSd}
		for _, t := range p.Terms {
			row.Terms = append(row.Terms, Term{t.Name, t.Mean, t.Sd})
		}
		for _, f := range p.Functions {
			row.Functions = append(row.Functions, Term{f.GetName(), f.GetMean(), f.GetSd()})
		}
		for _, c := range p.Classes {
			row.Classes = append(row.Classes, Class{c.GetName(), c.GetProbability()})
		}
		if err := r.answered(p); err != nil {
			return nil, Stats{}, err
		}
		if r.Targets != nil && r.Paths == 0 && !math.IsNaN(r.Targets[i]) {
			row.Target, row.LogDensity, row.CRPS, row.PIT = r.Targets[i], p.GetLogDensity(), p.GetCrps(), p.GetPit()
		}
		rows = append(rows, row)
	}
	s := m.Stats
	return rows, Stats{Draws: int(s.GetDraws()), Rows: int(s.GetRows()), Solves: int(s.GetSolves()), Iterations: int(s.GetIterations()),
		Unconverged: int(s.GetUnconverged()), MeansUnconverged: int(s.GetMeansUnconverged()), Clipped: int(s.GetClipped()),
		Bound: s.GetBound(), SurfaceError: s.GetSurfaceError(), Jitter: s.GetJitter()}, nil
}

// answered returns an error if a row is not what the request asks for: of a worker of another release, say.
func (r *Request) answered(p *pb.PredictedRow) error {
	quantiles, covariance, gradient, sds := len(r.Probs), 0, 0, 0
	if r.Paths > 0 {
		quantiles = 0
	}
	if r.Covariance {
		covariance = len(r.X)
	}
	if r.Gradient {
		gradient = len(r.X[0])
	}
	if r.GradientSD {
		sds = gradient
	}
	switch {
	case len(p.Quantiles) != quantiles:
		return fmt.Errorf("%d quantiles came back of %d", len(p.Quantiles), quantiles)
	case len(p.Covariance) != covariance:
		return fmt.Errorf("%d covariances came back of %d", len(p.Covariance), covariance)
	case len(p.Gradient) != gradient || len(p.GradientSd) != sds:
		return fmt.Errorf("a gradient came back of %d numbers with %d sds, want %d with %d", len(p.Gradient), len(p.GradientSd), gradient, sds)
	case r.Terms != (len(p.Terms) > 0):
		return fmt.Errorf("%d terms came back", len(p.Terms))
	case len(p.Paths) != r.Paths*max(1, len(p.Functions)):
		return fmt.Errorf("%d paths came back of %d", len(p.Paths), r.Paths)
	}
	return nil
}

// EncodeDraws returns draws of ψ as little-endian float64, and DecodeDraws reads
// those of p parameters back.
func EncodeDraws(draws [][]float64) []byte {
	var b []byte
	for _, psi := range draws {
		for _, x := range psi {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
		}
	}
	return b
}

// DecodeDraws reads what EncodeDraws wrote.
func DecodeDraws(b []byte, p int) ([][]float64, error) {
	if len(b) == 0 || len(b)%(8*p) != 0 || len(b) > 8*p*MaxDraws {
		return nil, errors.New("these are not draws of the model's parameters, or too many")
	}
	draws := solve.Columns(p, len(b)/(8*p))
	for t := range draws {
		for i := range draws[t] {
			draws[t][i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*(t*p+i):]))
		}
	}
	return draws, nil
}

// DrawsSHA256 returns the hash of draws in hex.
func DrawsSHA256(draws [][]float64) string {
	sum := sha256.Sum256(EncodeDraws(draws))
	return hex.EncodeToString(sum[:])
}
