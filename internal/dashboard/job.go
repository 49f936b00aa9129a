package dashboard

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/client"
)

// jobPage is all that the page of a job shows.
type jobPage struct {
	Job     jobView
	Actions []action
	Submit  bool // the viewer may repeat the job
	Remedy  bool // half the step may help
	// Annotate says that the viewer may change note and tags.
	Annotate bool
	Done     *action // that was just done
	Stale    string
	Figures  []figure
	Groups   []group
	Names    string   // of the parameters, of which the page knows none before the job's data were read
	Choices  []choice // of parameters
	Formats  []string // of draws, to download
	Others   []other  // jobs to compare with
	Version  string   // of the figures
	Key      string   // of the figures that there are
	Summary  *summaryView
	Notes    []noteView
	Log      []logLine
	Spec     string
}

// figure is a plot on a page.
type figure struct {
	Name, Title, Alt string
	Src              string // without the version
}

// group is a choice of parameters to plot, if there are many.
type group struct {
	Name, Query string
	Current     bool
}

// noteView is an event of a job.
type noteView struct {
	Time       time.Time
	Kind, Text string
}

// choice is a parameter that plots can show.
type choice struct {
	Index  int
	Name   string
	Chosen bool
}

// other is a job to compare with.
type other struct{ ID, Title, State string }

// groupSize is the number of parameters that plots show at a time, unless others are chosen, of which they
// show mostChosen.
const (
	groupSize  = 6
	mostChosen = 12
)

// selection says which parameters plots are to show: those chosen, or groupSize from the first.
type selection struct {
	from   int
	chosen []int
}

// paramsOf returns the parameters that plots are to show.
func paramsOf(r *http.Request) (s selection) {
	q := r.URL.Query()
	for _, text := range q["param"] {
		if n, err := strconv.Atoi(text); err == nil && n >= 0 && len(s.chosen) < mostChosen && !slices.Contains(s.chosen, n) {
			s.chosen = append(s.chosen, n)
		}
	}
	slices.Sort(s.chosen)
	if n, err := strconv.Atoi(q.Get("from")); err == nil && n >= 0 {
		s.from = n
	}
	return s
}

// of returns which of n parameters are shown.
func (s selection) of(n int) []int {
	var out []int
	for _, i := range s.chosen {
		if i < n {
			out = append(out, i)
		}
	}
	if len(s.chosen) > 0 {
		return out
	}
	for i := min(s.from, n); i < min(s.from+groupSize, n); i++ {
		out = append(out, i)
	}
	return out
}

// String returns the selection as a URL has it.
func (s selection) String() string {
	if len(s.chosen) == 0 {
		return url.Values{"from": {strconv.Itoa(s.from)}}.Encode()
	}
	v := url.Values{}
	for _, i := range s.chosen {
		v.Add("param", strconv.Itoa(i))
	}
	return v.Encode()
}

// formats are those of draws that a browser can download.
var formats = []string{"csv", "parquet", "npz", "netcdf"}

// jobNow returns the page of a job as it is now, for somebody.
func (d *Dashboard) jobNow(f *feed, j *pb.Job, shown selection, who *pb.Identity) *jobPage {
	draws := f.version(time.Now())
	h := f.course(j)
	names, rhat := f.model()
	v := &jobPage{Job: newJobView(j), Names: strings.Join(names, " "), Submit: may(who, nil), Spec: j.Spec, Version: fmt.Sprintf("%d-%d", draws, marks(h)),
		Summary: newSummary(f.summary(j, draws), rhat), Log: f.log(j)}
	v.Remedy = v.Submit && diverged(j)
	if v.Annotate = may(who, j); v.Annotate {
		v.Actions = allowed(j.State)
	}
	for _, n := range h.GetNotes() {
		v.Notes = append([]noteView{{when(n.Time), n.Kind, n.Text}}, v.Notes...) // the latest first
	}
	if len(names) > groupSize {
		for at := 0; at < len(names); at += groupSize {
			last := min(at+groupSize, len(names))
			v.Groups = append(v.Groups, group{Name: names[at] + " … " + names[last-1], Query: fmt.Sprintf("?from=%d", at), Current: at == shown.from && len(shown.chosen) == 0})
		}
	}
	if len(names) > 1 {
		at := shown.of(len(names))
		for i, n := range names {
			v.Choices = append(v.Choices, choice{i, n, slices.Contains(at, i)})
		}
	}
	if client.MinDraws(j.GetProgress()) > 0 {
		v.Formats = formats
	}
	scales := v.Summary != nil && v.Summary.Scales != nil
	v.Key = fmt.Sprint(draws > 0, marks(h) > 0, scales)
	for _, p := range jobPlots {
		if p.draws && draws == 0 || !p.draws && marks(h) == 0 || p.scales && !scales {
			continue
		}
		v.Figures = append(v.Figures, figure{Name: p.name, Title: p.title, Alt: p.alt, Src: "/jobs/" + url.PathEscape(j.Id) + "/plots/" + p.name + ".svg?" + shown.String()})
	}
	return v
}
