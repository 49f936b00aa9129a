package dashboard

import (
	"bytes"
	"compress/gzip"
	"container/list"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/ulisse-gp/ulisse/internal/plots"
)

// pictures keeps plots that were drawn, the latest version of each, of all a
// bounded number of bytes. Whoever asks for one that is being drawn waits for it.
type pictures struct {
	most int
	// turn bounds how many are drawn at a time: a coordinator has better to do.
	turn chan struct{}

	mu    sync.Mutex
	size  int
	byKey map[string]*list.Element // of *picture
	order list.List                // used last first
}

type picture struct {
	key     string
	mu      sync.Mutex // held while it is drawn
	version string
	zipped  []byte
	size    int // as counted
}

func newPictures(most int) *pictures {
	return &pictures{most: most, turn: make(chan struct{}, 2), byKey: map[string]*list.Element{}}
}

// get returns a picture, compressed, drawing it if need be.
func (s *pictures) get(key, version string, draw func(io.Writer) error) ([]byte, error) {
	s.mu.Lock()
	e := s.byKey[key]
	if e == nil {
		e = s.order.PushFront(&picture{key: key})
		s.byKey[key] = e
	}
	s.order.MoveToFront(e)
	p := e.Value.(*picture)
	s.mu.Unlock()

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.zipped != nil && p.version == version {
		return p.zipped, nil
	}
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err := draw(z); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	p.version, p.zipped = version, bytes.Clone(b.Bytes())
	s.keep(e, p)
	return p.zipped, nil
}

// keep counts a picture and drops those that were not used for longest.
func (s *pictures) keep(e *list.Element, p *picture) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byKey[p.key] != e {
		return // dropped meanwhile
	}
	s.size += len(p.zipped) - p.size
	p.size = len(p.zipped)
	for s.size > s.most && s.order.Len() > 1 {
		last := s.order.Back()
		old := last.Value.(*picture)
		s.size -= old.size
		delete(s.byKey, old.key)
		s.order.Remove(last)
	}
}

// picturePolicy lets a picture that is looked at by itself have its style sheet.
const picturePolicy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"

// picture serves a plot in the version that there is now.
func (d *Dashboard) picture(w http.ResponseWriter, r *http.Request, key, version string, draw func(io.Writer, ...plots.Option) error) {
	var opts []plots.Option
	if r.URL.Query().Has("narrow") {
		key += "/narrow"
		opts = append(opts, plots.Narrow())
	}
	hash := fnv.New64a()
	io.WriteString(hash, key+" "+version)
	tag := fmt.Sprintf(`"%x"`, hash.Sum64())
	h := w.Header()
	h.Set("Content-Security-Policy", picturePolicy)
	h.Set("Cache-Control", "private, no-cache")
	h.Set("ETag", tag)
	h.Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	zipped, err := d.pictures.get(key, version, func(w io.Writer) error { return draw(w, opts...) })
	if err != nil {
		d.Logger.Error("drawing a plot", "plot", key, "error", err)
		http.Error(w, "the plot could not be drawn; the coordinator's log says why", http.StatusInternalServerError)
		return
	}
	h.Set("Content-Type", "image/svg+xml; charset=utf-8")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		_, _ = w.Write(zipped)
		return
	}
	z, err := gzip.NewReader(bytes.NewReader(zipped))
	if err == nil {
		_, _ = io.Copy(w, z)
	}
}
