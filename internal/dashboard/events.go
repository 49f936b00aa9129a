package dashboard

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// message is what a stream sends: HTML for the element with an id, or the
// version of the plots. An element that has the message's key has its HTML.
type message struct {
	ID    string `json:"id,omitempty"`
	Key   string `json:"key,omitempty"`
	HTML  string `json:"html,omitempty"`
	Plots string `json:"plots,omitempty"`
}

// keepAlive is how often a stream says something though nothing is new, so that
// browsers and proxies keep it.
const keepAlive = 15 * time.Second

// stream sends a page's fragments to a browser, at once and whenever wait has
// returned, those that have changed since they were sent. It has no queue: what
// is sent is what is new when the browser has taken what was before.
func (d *Dashboard) stream(w http.ResponseWriter, r *http.Request, fragments func(context.Context) ([]message, error), wait func(context.Context)) {
	select {
	case d.streams <- struct{}{}:
		defer func() { <-d.streams }()
	default:
		http.Error(w, "too many pages listen to this coordinator", http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	send := func(text []byte) error {
		if err := out.SetWriteDeadline(time.Now().Add(slowest)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
		return out.Flush()
	}
	if send([]byte("retry: 2000\n\n")) != nil {
		return
	}
	sent := map[string][32]byte{}
	last := time.Now()
	for ctx.Err() == nil {
		began := time.Now()
		messages, err := fragments(ctx)
		if err != nil {
			if ctx.Err() == nil {
				messages = []message{{ID: "trouble", HTML: d.text("trouble", plain(err))}}
			}
		} else {
			messages = append(messages, message{ID: "trouble", HTML: ""})
		}
		var b bytes.Buffer
		for _, m := range messages {
			text, err := json.Marshal(m)
			if err != nil {
				return
			}
			sum := sha256.Sum256(text)
			if sent[m.ID] == sum {
				continue
			}
			sent[m.ID] = sum
			fmt.Fprintf(&b, "data: %s\n\n", text)
		}
		if b.Len() == 0 && time.Since(last) > keepAlive {
			b.WriteString(": still here\n\n")
		}
		if b.Len() > 0 {
			last = time.Now()
			if send(b.Bytes()) != nil {
				return
			}
		}
		pause(ctx, max(d.Every, 5*time.Since(began)))
		wait(ctx)
	}
	if why := context.Cause(r.Context()); status.Code(why) == codes.Unauthenticated { // the viewer's token has ended
		if text, err := json.Marshal(message{ID: "trouble", HTML: d.text("trouble", plain(why))}); err == nil {
			_ = send(fmt.Appendf(nil, "data: %s\n\n", text)) // who is gone reads nothing
		}
	}
}

// pause waits, unless ctx is done before.
func pause(ctx context.Context, t time.Duration) {
	select {
	case <-time.After(t):
	case <-ctx.Done():
	}
}

// until waits for a change, or for most at most: times and ages change too.
func until(ctx context.Context, changed <-chan struct{}, most time.Duration) {
	select {
	case <-changed:
	case <-time.After(most):
	case <-ctx.Done():
	}
}
