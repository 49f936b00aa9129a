package dashboard

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// jobPage is all that the page of a job shows.
type jobPage struct {
	Job     jobView
	Actions []action
	Done    *action // that was just done
	Stale   string
	Figures []figure
	Groups  []group
	Version string // of the figures
	Key     string // of the figures that there are
	Summary *summaryView
	Notes   []noteView
	Log     []logLine
	Spec    string
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

// groupSize is the number of parameters that plots show at a time.
const groupSize = 6

// paramsOf returns the first parameter that plots are to show.
func paramsOf(r *http.Request) int {
	n, err := strconv.Atoi(r.URL.Query().Get("from"))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// jobNow returns the page of a job as it is now.
func (d *Dashboard) jobNow(f *feed, j *pb.Job, from int) *jobPage {
	draws := f.version(time.Now())
	h := f.course(j)
	names, rhat := f.model()
	v := &jobPage{Job: newJobView(j), Actions: allowed(j.State), Spec: j.Spec, Version: fmt.Sprintf("%d-%d", draws, marks(h)),
		Summary: newSummary(f.summary(j, draws), rhat, draws), Log: f.log(j)}
	for _, n := range h.GetNotes() {
		v.Notes = append([]noteView{{when(n.Time), n.Kind, n.Text}}, v.Notes...) // the latest first
	}
	if len(names) > groupSize {
		for at := 0; at < len(names); at += groupSize {
			last := min(at+groupSize, len(names))
			v.Groups = append(v.Groups, group{Name: names[at] + " … " + names[last-1], Query: fmt.Sprintf("?from=%d", at), Current: at == from})
		}
	}
	v.Key = fmt.Sprint(draws > 0, marks(h) > 0)
	for _, p := range jobPlots {
		if p.draws && draws == 0 || !p.draws && marks(h) == 0 {
			continue
		}
		q := url.Values{"from": {strconv.Itoa(from)}}
		v.Figures = append(v.Figures, figure{Name: p.name, Title: p.title, Alt: p.alt, Src: "/jobs/" + url.PathEscape(j.Id) + "/plots/" + p.name + ".svg?" + q.Encode()})
	}
	return v
}
