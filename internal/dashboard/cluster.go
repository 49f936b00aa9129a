package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/plots"
)

// workersPage is what the page of the workers shows.
type workersPage struct {
	Workers []workerView
	Since   time.Time
	Version string
	Figures []figure
	Key     string // of the figures that there are
	Total   string
	Events  []noteView
}

// workersNow asks for the workers.
func (d *Dashboard) workersNow(ctx context.Context) (*workersPage, *pb.WorkersHistory, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := d.workers.List(ctx, &pb.ListWorkersRequest{Stale: true})
	if err != nil {
		return nil, nil, err
	}
	h, err := d.history.Workers(ctx, &pb.WorkersHistoryRequest{})
	if err != nil {
		return nil, nil, err
	}
	v := &workersPage{Workers: newWorkers(r.Workers, h), Since: when(h.Since), Version: workersVersion(h)}
	cores := 0
	for _, w := range v.Workers {
		if w.State != "lost" {
			cores += w.Cores
		}
	}
	v.Total = fmt.Sprintf("%d workers, %d cores", len(v.Workers), cores)
	for _, e := range slices.Backward(h.Events) {
		if v.Events = append(v.Events, noteView{when(e.Time), e.Kind, e.Worker}); len(v.Events) == 50 {
			break
		}
	}
	if len(h.Events) > 0 {
		v.Figures = append(v.Figures, figure{Name: "presence", Title: "Joins and losses", Alt: "When each worker was connected, with its joins and losses.", Src: "/workers/plots/presence.svg?"})
	}
	if slices.ContainsFunc(h.Workers, func(c *pb.WorkerCourse) bool { return len(c.Time) > 1 }) {
		v.Figures = append(v.Figures, figure{Name: "work", Title: "Work", Alt: "Elements of K for each second, and cores at work, of each worker against time.", Src: "/workers/plots/work.svg?"})
	}
	v.Key = strconv.Itoa(len(v.Figures))
	return v, h, nil
}

// workersVersion is the version of the workers' plots.
func workersVersion(h *pb.WorkersHistory) string {
	points := 0
	var last time.Time
	for _, c := range h.GetWorkers() {
		if n := len(c.Time); n > 0 {
			points += n
			if t := when(c.Time[n-1]); t.After(last) {
				last = t
			}
		}
	}
	events := ""
	if n := len(h.GetEvents()); n > 0 {
		events = strconv.Itoa(int(when(h.Events[n-1].Time).UnixMilli()))
	}
	return fmt.Sprintf("%d-%d-%s", points, last.Unix()/10, events)
}

func (d *Dashboard) workersPage(w http.ResponseWriter, r *http.Request) {
	v, _, err := d.workersNow(r.Context())
	if err != nil {
		d.fail(w, r, err)
		return
	}
	d.page(w, r, http.StatusOK, page{Title: "Workers", Section: "workers", Events: "/events/workers"}, "workers", v)
}

func (d *Dashboard) workersEvents(w http.ResponseWriter, r *http.Request) {
	d.stream(w, r, func(ctx context.Context) ([]message, error) {
		v, _, err := d.workersNow(ctx)
		if err != nil {
			return nil, err
		}
		return []message{{ID: "workers", HTML: d.text("workers-table", v)}, {ID: "events", HTML: d.text("workers-events", v)}, {ID: "figures", Key: v.Key, HTML: d.text("figures", v.Figures)}, {ID: "plots", Plots: v.Version}}, nil
	}, func(ctx context.Context) { pause(ctx, d.Every) })
}

// workersPlot serves a plot of the workers.
func (d *Dashboard) workersPlot(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimSuffix(r.PathValue("plot"), ".svg")
	draw := map[string]func(io.Writer, *pb.WorkersHistory, ...plots.Option) error{"presence": presencePlot, "work": workPlot}[name]
	if draw == nil {
		d.fail(w, r, errNoPage)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	h, err := d.history.Workers(ctx, &pb.WorkersHistoryRequest{})
	if err != nil {
		http.Error(w, plain(err), httpStatus(err))
		return
	}
	d.picture(w, r, "workers/"+name, workersVersion(h), func(w io.Writer, o ...plots.Option) error { return draw(w, h, o...) })
}

// maxRows bounds the rows of the time line: those of whom something happened
// last are shown.
const maxRows = 40

// presencePlot draws when workers were there.
func presencePlot(w io.Writer, h *pb.WorkersHistory, o ...plots.Option) error {
	var rows []string
	var spans []plots.Span
	var marks []plots.Mark
	open := map[string]time.Time{}
	for _, e := range h.Events {
		at := when(e.Time)
		rows = slices.DeleteFunc(rows, func(r string) bool { return r == e.Worker })
		rows = append(rows, e.Worker)
		marks = append(marks, plots.Mark{Row: e.Worker, Kind: e.Kind, At: at})
		from, there := open[e.Worker]
		switch {
		case e.Kind == "joined" && !there:
			open[e.Worker] = at
		case e.Kind == "lost" || e.Kind == "left":
			if !there {
				from = when(h.Since)
			}
			spans = append(spans, plots.Span{Row: e.Worker, From: from, To: at})
			delete(open, e.Worker)
		}
	}
	for id, from := range open {
		spans = append(spans, plots.Span{Row: id, From: from, To: time.Now()})
	}
	slices.SortFunc(spans, func(a, b plots.Span) int { return cmp.Or(cmp.Compare(a.Row, b.Row), a.From.Compare(b.From)) })
	rows = rows[max(0, len(rows)-maxRows):]
	slices.Sort(rows)
	return plots.Timeline(w, "Workers: joins and losses", "When each worker was connected to the leader.", rows, spans, marks, o...)
}

// workPlot draws what workers did.
func workPlot(w io.Writer, h *pb.WorkersHistory, o ...plots.Option) error {
	of := func(value func(*pb.WorkerCourse) []float64) []plots.Line {
		var out []plots.Line
		for _, c := range h.Workers {
			l := plots.Line{Name: c.Worker, Y: value(c)}
			for _, t := range c.Time {
				l.X = append(l.X, float64(when(t).UnixMilli())/1000)
			}
			if len(l.X) > 0 {
				out = append(out, l)
			}
		}
		return out
	}
	return plots.Course(w, "Workers: work done", "Elements of K that each worker ranged over, and its cores at work, against time.", []plots.Panel{
		{X: "time / UTC", Y: "10⁹ pairs / s", Zero: true, Time: true, Lines: of(func(c *pb.WorkerCourse) []float64 { return scaled(c.PairsPerSecond, 1e-9) })},
		{X: "time / UTC", Y: "busy cores", Zero: true, Time: true, Lines: of(func(c *pb.WorkerCourse) []float64 { return c.Busy })},
	}, o...)
}

// scaled returns y in another unit.
func scaled(y []float64, by float64) []float64 {
	out := make([]float64, len(y))
	for i, v := range y {
		out[i] = by * v
	}
	return out
}

// clusterPage is what the page of the coordinators shows.
type clusterPage struct {
	Leader  string
	Term    uint64
	Members []memberView
	Health  string
	Well    bool
}

// memberView is a coordinator.
type memberView struct {
	ID, Role, State, Contact, Version string
	GRPC, Raft, HTTP                  string
	Applied, Lag                      uint64
}

// clusterNow asks for the coordinators.
func (d *Dashboard) clusterNow(ctx context.Context) (*clusterPage, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := d.cluster.Members(ctx, &pb.MembersRequest{})
	if err != nil {
		return nil, err
	}
	v := &clusterPage{Leader: r.Leader, Term: r.Term}
	voters, healthy := 0, 0
	for _, m := range r.Members {
		x := memberView{ID: m.Id, Role: "voter", State: "healthy", Version: m.Version, GRPC: m.GrpcAddress, Raft: m.RaftAddress, HTTP: m.HttpAddress,
			Applied: m.AppliedIndex, Lag: m.Lag, Contact: "never"}
		if m.ContactSeconds >= 0 {
			x.Contact = fmt.Sprintf("%.1f s ago", m.ContactSeconds)
		}
		switch {
		case m.Leader:
			x.Role, x.Contact = "leader", "now"
		case !m.Voter:
			x.Role = "no vote"
		}
		if !m.Healthy {
			x.State = "silent"
		}
		if m.Voter {
			voters++
			if m.Healthy {
				healthy++
			}
		}
		v.Members = append(v.Members, x)
	}
	majority := voters/2 + 1
	v.Well = healthy == voters
	switch spare := healthy - majority; {
	case healthy < majority:
		v.Health = fmt.Sprintf("%d of %d voters answer: no majority. Nothing can be decided until %d do.", healthy, voters, majority)
	case spare == 0 && voters == 1:
		v.Health = "One coordinator: if it is lost, everything waits until it is back."
	case spare == 0:
		v.Health = fmt.Sprintf("%d of %d voters answer: the loss of one more stops decisions.", healthy, voters)
	default:
		v.Health = fmt.Sprintf("%d of %d voters answer: the cluster bears the loss of %d more.", healthy, voters, spare)
	}
	return v, nil
}

func (d *Dashboard) clusterPage(w http.ResponseWriter, r *http.Request) {
	v, err := d.clusterNow(r.Context())
	if err != nil {
		d.fail(w, r, err)
		return
	}
	d.page(w, r, http.StatusOK, page{Title: "Cluster", Section: "cluster", Events: "/events/cluster"}, "cluster", v)
}

func (d *Dashboard) clusterEvents(w http.ResponseWriter, r *http.Request) {
	d.stream(w, r, func(ctx context.Context) ([]message, error) {
		v, err := d.clusterNow(ctx)
		if err != nil {
			return nil, err
		}
		return []message{{ID: "cluster", HTML: d.text("cluster-table", v)}}, nil
	}, func(ctx context.Context) { pause(ctx, d.Every) })
}
