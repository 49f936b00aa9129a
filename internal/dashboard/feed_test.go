package dashboard

import (
	"slices"
	"strings"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/dataset"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// Parameters are called by the scale on which they are drawn, as far as the model is known.
func TestLabels(t *testing.T) {
	info := dataset.Info{Rows: 9, Target: "y", InputNames: []string{"t"}, XScale: []dataset.Scale{{Mean: 5, SD: 3}}, YScale: dataset.Scale{SD: 1}, SHA256: strings.Repeat("0", 64)}
	j := &pb.Job{Spec: `{name: a, data: {path: a.csv, target: y}, model: {kernel: "s: sigmoid(t)", priors: {s.width: "uniform(1,2)"}}}`,
		Data: info.Wire(""), Progress: &pb.Progress{Parameters: []string{"s.variance", "s.place", "s.width", "lambda"}}}
	if got, want := labels(j), []string{"log s.variance", "s.place, standardised", "logit s.width", "log lambda"}; !slices.Equal(got, want) {
		t.Errorf("labels %q, want %q", got, want)
	}
	j.Data = nil
	if got := labels(j); got[1] != "log s.place" {
		t.Errorf("without data: %q", got)
	}
}
