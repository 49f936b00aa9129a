package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/report"
)

// compareView is the page of two jobs side by side.
type compareView struct {
	Jobs [2]jobView
	Rows []compareRow
	// Only are the lines of each specification that the other has not.
	Only [2][]string
}

// compareRow is a quantity in both.
type compareRow struct {
	Name       string
	Values     [2]string // mean ± sd; — where a job does not have the quantity
	Difference string    // of the means, in the root of the mean of the variances
	Large      bool
}

// largeDifference is the difference, in posterior sds, from which on posteriors do not much overlap.
const largeDifference = 2

// others returns the latest jobs but one, to compare with.
func (d *Dashboard) others(ctx context.Context, id string) []other {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := d.jobs.List(ctx, &pb.ListJobsRequest{PageSize: pageSize, Stale: true})
	if err != nil { // the page does without
		return nil
	}
	var out []other
	for _, j := range r.Jobs {
		if j.Id != id {
			out = append(out, other{j.Id, title(j), client.StateWord(j.State)})
		}
	}
	return out
}

// comparePage shows two jobs side by side.
func (d *Dashboard) comparePage(w http.ResponseWriter, r *http.Request) {
	ids := r.URL.Query()["job"]
	if len(ids) != 2 {
		d.fail(w, r, status.Error(codes.InvalidArgument, "two jobs can be compared: choose the second on the page of the first"))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	v := compareView{}
	var sums [2]*report.Summary
	var lines [2][]string
	for i, id := range ids {
		j, err := d.jobs.Get(ctx, &pb.GetJobRequest{Id: id, Stale: true})
		if err != nil {
			d.fail(w, r, err)
			return
		}
		v.Jobs[i], lines[i] = newJobView(j), strings.Split(strings.TrimSpace(j.Spec), "\n")
		sums[i] = &report.Summary{}
		if s, err := d.jobs.Summary(ctx, &pb.GetJobRequest{Id: id, Stale: true}); err == nil { // else it has none yet
			_ = json.Unmarshal([]byte(s.Json), sums[i])
		}
	}
	v.Rows = compareRows(sums)
	for i := range lines {
		for _, l := range lines[i] {
			if !slices.Contains(lines[1-i], l) {
				v.Only[i] = append(v.Only[i], l)
			}
		}
	}
	d.page(w, r, http.StatusOK, page{Title: "Compare " + v.Jobs[0].Title + " and " + v.Jobs[1].Title, Section: "jobs"}, "compare", v)
}

// compareRows puts the quantities of two summaries beside each other, in the order of the first.
func compareRows(sums [2]*report.Summary) []compareRow {
	find := func(s *report.Summary, name string) *report.Parameter {
		for i := range s.Parameters {
			if s.Parameters[i].Name == name {
				return &s.Parameters[i]
			}
		}
		return nil
	}
	var out []compareRow
	for i, s := range sums {
		for _, p := range s.Parameters {
			if p.Detail || i == 1 && find(sums[0], p.Name) != nil {
				continue
			}
			row := compareRow{Name: p.Name, Difference: "—"}
			both := [2]*report.Parameter{find(sums[0], p.Name), find(sums[1], p.Name)}
			for k, q := range both {
				row.Values[k] = "—"
				if q != nil {
					row.Values[k] = value("%.4g", q.Mean) + " ± " + value("%.2g", q.SD)
				}
			}
			if a, b := both[0], both[1]; a != nil && b != nil {
				x := float64(b.Mean-a.Mean) / math.Sqrt(0.5*float64(a.SD*a.SD+b.SD*b.SD))
				if !math.IsNaN(x) && !math.IsInf(x, 0) {
					row.Difference, row.Large = strings.Replace(fmt.Sprintf("%+.2f", x), "-", "−", 1), math.Abs(x) >= largeDifference
				}
			}
			out = append(out, row)
		}
	}
	return out
}
