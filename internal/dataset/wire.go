package dataset

import (
	"github.com/ulisse-gp/ulisse/internal/likelihood"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// Wire returns a description as it goes over the wire, of a table with a content
// address, if it has one.
func (i *Info) Wire(address string) *pb.DataInfo {
	if i == nil {
		return &pb.DataInfo{Blob: address}
	}
	m := &pb.DataInfo{Blob: address, Sha256: i.SHA256, N: int64(i.Rows), D: int32(i.D()), Target: i.Target, Inputs: i.InputNames,
		TargetScale: i.YScale.wire(), HeldOut: int64(i.HeldOut), Notes: i.Notes}
	for _, s := range i.XScale {
		m.InputScales = append(m.InputScales, s.wire())
	}
	if tr := i.Transform; tr.Kind != likelihood.None {
		m.Transform = &pb.Transform{Kind: tr.Kind, Lambda: tr.Lambda}
	}
	if n := i.Noise; n != nil {
		m.Noise = &pb.NoiseColumns{Column: n.Column, Variance: n.Variance, Weights: n.Weights, By: n.By, Levels: n.Levels}
	}
	m.Classes, m.Offset = i.Classes, i.Offset
	for _, names := range i.Levels {
		m.Levels = append(m.Levels, &pb.Levels{Names: names})
	}
	for _, d := range i.Dates {
		m.Dates = append(m.Dates, &pb.Dates{Unit: d.Unit, Layout: d.Layout})
	}
	for _, im := range i.Imputed {
		m.Imputed = append(m.Imputed, &pb.Imputed{Input: int32(im.Input), Median: im.Median, Indicator: int32(im.Indicator)})
	}
	if t := i.Truth; t != nil {
		m.MadeWith = append(append([]float64{t.Sigma}, t.Tau...), t.Lambda)
		m.Truth = t.Psi()
	}
	return m
}

// InfoOf reads a description. What makes no sense is left to Check.
func InfoOf(m *pb.DataInfo) *Info {
	i := &Info{SHA256: m.GetSha256(), Rows: int(m.GetN()), Target: m.GetTarget(), InputNames: m.GetInputs(), YScale: scaleFrom(m.GetTargetScale()), HeldOut: int(m.GetHeldOut()), Notes: m.GetNotes()}
	for _, s := range m.GetInputScales() {
		i.XScale = append(i.XScale, scaleFrom(s))
	}
	i.Classes, i.Offset = m.GetClasses(), m.GetOffset()
	for _, l := range m.GetLevels() {
		i.Levels = append(i.Levels, l.GetNames())
	}
	i.Noise = NoiseOf(m)
	i.Transform = likelihood.Transform{Kind: m.GetTransform().GetKind(), Lambda: m.GetTransform().GetLambda()}
	for _, d := range m.GetDates() {
		i.Dates = append(i.Dates, Date{Unit: d.GetUnit(), Layout: d.GetLayout()})
	}
	for _, im := range m.GetImputed() {
		i.Imputed = append(i.Imputed, Imputed{Input: int(im.GetInput()), Median: im.GetMedian(), Indicator: int(im.GetIndicator())})
	}
	if t := m.GetMadeWith(); len(t) > 1 {
		i.Truth = &Truth{Sigma: t[0], Tau: t[1 : len(t)-1], Lambda: t[len(t)-1]}
	}
	return i
}

func (s Scale) wire() *pb.Scale { return &pb.Scale{Mean: s.Mean, Sd: s.SD} }

func scaleFrom(m *pb.Scale) Scale { return Scale{Mean: m.GetMean(), SD: m.GetSd()} }

// NoiseOf reads which columns say what noise there is, nil for none.
func NoiseOf(m *pb.DataInfo) *Noise {
	n := m.GetNoise()
	if n == nil {
		return nil
	}
	return &Noise{Column: n.Column, Variance: n.Variance, Weights: n.Weights, By: n.By, Levels: n.Levels}
}
