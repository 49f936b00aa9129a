package dashboard

import (
	"cmp"
	"context"
	"embed"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// Config configures a dashboard.
type Config struct {
	// Conn leads to a coordinator; calls that a viewer causes are made on it, with
	// the context of his request.
	Conn grpc.ClientConnInterface
	// Background is the context of calls for what viewers share, the feeds of jobs:
	// it tells that this coordinator asks. Nil means context.Background().
	Background context.Context
	// Protect, if set, wraps the handlers of all pages: it refuses who may not
	// look, and adds to the context what RPCs need to tell who asks.
	Protect func(http.Handler) http.Handler
	// Viewer, if set, returns who makes a request: pages show the name, and offer what
	// the role allows. Nil is somebody unknown.
	Viewer func(*http.Request) *pb.Identity
	// Node names the coordinator that serves the pages.
	Node   string
	Logger *slog.Logger
	// Every is the shortest time between two updates of a page. Zero means 1 s.
	Every time.Duration
}

// Limits.
const (
	maxFeeds    = 64       // jobs that are followed at a time
	maxStreams  = 1000     // browsers that listen
	maxPictures = 64 << 20 // bytes of plots that are kept
	feedIdle    = time.Minute
	slowest     = 15 * time.Second // for a browser to take an update
	callTimeout = 10 * time.Second
	pageSize    = 100  // jobs
	shortTail   = 12   // lines of a log on the page of its job
	logTail     = 2000 // on its own
)

// Dashboard serves the pages.
type Dashboard struct {
	Config
	jobs    pb.JobsClient
	workers pb.WorkersClient
	cluster pb.ClusterClient
	history pb.HistoryClient
	data    pb.DataClient

	predictions pb.PredictionsClient
	predicting  chan struct{} // a place for each that is under way

	pages    *template.Template
	feeds    *feeds
	pictures *pictures
	streams  chan struct{} // a place for each browser that listens
	handler  http.Handler
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup
}

//go:embed templates/*.html static/*
var files embed.FS

// New returns a dashboard. Close ends what it started.
func New(c Config) (*Dashboard, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Background == nil {
		c.Background = context.Background()
	}
	c.Every = cmp.Or(c.Every, time.Second)
	d := &Dashboard{Config: c, jobs: pb.NewJobsClient(c.Conn), workers: pb.NewWorkersClient(c.Conn), cluster: pb.NewClusterClient(c.Conn), history: pb.NewHistoryClient(c.Conn),
		data: pb.NewDataClient(c.Conn), predictions: pb.NewPredictionsClient(c.Conn), predicting: make(chan struct{}, maxPredictions),
		pictures: newPictures(maxPictures), streams: make(chan struct{}, maxStreams)}
	var err error
	if d.pages, err = template.New("").Funcs(functions).ParseFS(files, "templates/*.html"); err != nil {
		return nil, err
	}
	d.ctx, d.cancel = context.WithCancel(c.Background)
	d.feeds = newFeeds(d.ctx, &d.wg, c.Conn, c.Every, c.Logger)
	static, err := fs.Sub(files, "static")
	if err != nil {
		return nil, err
	}
	pages := http.NewServeMux()
	pages.HandleFunc("GET /{$}", d.home)
	pages.HandleFunc("GET /submit", d.submitPage)
	pages.HandleFunc("POST /submit", d.submit)
	pages.HandleFunc("POST /submit/check", d.checkForm)
	pages.HandleFunc("GET /jobs", d.jobsPage)
	pages.HandleFunc("GET /jobs/{id}", d.jobPage)
	pages.HandleFunc("GET /jobs/{id}/logs", d.logsPage)
	pages.HandleFunc("GET /jobs/{id}/plots/{plot}", d.plot)
	pages.HandleFunc("GET /jobs/{id}/spec.yaml", d.specPage)
	pages.HandleFunc("GET /jobs/{id}/predict", d.predictPage)
	pages.HandleFunc("POST /jobs/{id}/predict", d.predictRow)
	pages.HandleFunc("POST /jobs/{id}/predictions", d.predictTable)
	pages.HandleFunc("POST /jobs/{id}/curve", d.predictCurve)
	pages.HandleFunc("GET /jobs/{id}/annotate", d.annotatePage)
	pages.HandleFunc("POST /jobs/{id}/annotate", d.annotate)
	pages.HandleFunc("GET /compare", d.comparePage)
	pages.HandleFunc("GET /jobs/{id}/{action}", d.confirm)
	pages.HandleFunc("POST /jobs/{id}/{action}", d.act)
	pages.HandleFunc("GET /workers", d.workersPage)
	pages.HandleFunc("GET /workers/plots/{plot}", d.workersPlot)
	pages.HandleFunc("GET /cluster", d.clusterPage)
	pages.HandleFunc("GET /events/jobs", d.jobsEvents)
	pages.HandleFunc("GET /events/jobs/{id}", d.jobEvents)
	pages.HandleFunc("GET /events/workers", d.workersEvents)
	pages.HandleFunc("GET /events/cluster", d.clusterEvents)
	pages.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { d.fail(w, r, errNoPage) })
	var protected http.Handler = http.NewCrossOriginProtection().Handler(pages)
	if c.Protect != nil {
		protected = c.Protect(protected)
	}
	all := http.NewServeMux()
	all.Handle("GET /static/", http.StripPrefix("/static/", cached(http.FileServerFS(static))))
	all.Handle("/", protected)
	d.handler = headers(all)
	return d, nil
}

// ServeHTTP serves a request.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }

// Close ends all streams and feeds.
func (d *Dashboard) Close() {
	d.cancel()
	d.wg.Wait()
}

// home leads to the jobs.
func (d *Dashboard) home(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, "/jobs", http.StatusFound)
}

// policy allows nothing but what the pages themselves bring: no script or style
// within a page, nothing from elsewhere, no frame around it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func headers(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for k, v := range map[string]string{"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff",
			"Referrer-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin"} {
			w.Header().Set(k, v)
		}
		h.ServeHTTP(w, r)
	})
}

// cached lets browsers keep what comes with the program for a while.
func cached(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=300")
		h.ServeHTTP(w, r)
	})
}
