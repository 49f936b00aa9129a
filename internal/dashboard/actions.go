package dashboard

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/client"
)

// action is something that a user does to a job.
type action struct {
	Name    string // in the path
	Word    string // on the button
	Explain string // what it does
	Draws   bool   // it wants to know how many
	Danger  bool
	allowed func(pb.JobState) bool
	do      func(context.Context, pb.JobsClient, string, int32) error
}

var actions = []action{
	{Name: "pause", Word: "Pause", Explain: "The chains stop at their next checkpoints. Nothing is lost: resume the job and it goes on to the same draws.",
		allowed: func(s pb.JobState) bool { return !client.Ended(s) && s != pb.JobState_JOB_STATE_PAUSED },
		do: func(ctx context.Context, c pb.JobsClient, id string, _ int32) error {
			_, err := c.Pause(ctx, &pb.JobActionRequest{Id: id})
			return err
		}},
	{Name: "resume", Word: "Resume", Explain: "The job queues for workers and goes on where it was. A job that has failed is tried again.",
		allowed: func(s pb.JobState) bool {
			return s == pb.JobState_JOB_STATE_PAUSED || s == pb.JobState_JOB_STATE_FAILED
		},
		do: func(ctx context.Context, c pb.JobsClient, id string, _ int32) error {
			_, err := c.Resume(ctx, &pb.JobActionRequest{Id: id})
			return err
		}},
	{Name: "extend", Word: "Extend", Explain: "Each chain draws more. The draws are those that the job would have made, had it been asked for them at the start.", Draws: true,
		allowed: func(s pb.JobState) bool {
			return s >= pb.JobState_JOB_STATE_WARMUP && s != pb.JobState_JOB_STATE_FAILED
		},
		do: func(ctx context.Context, c pb.JobsClient, id string, draws int32) error {
			_, err := c.Extend(ctx, &pb.ExtendRequest{Id: id, Draws: draws})
			return err
		}},
	{Name: "cancel", Word: "Cancel", Explain: "The job ends for good. Its draws so far are kept.", Danger: true,
		allowed: func(s pb.JobState) bool { return !client.Ended(s) },
		do: func(ctx context.Context, c pb.JobsClient, id string, _ int32) error {
			_, err := c.Cancel(ctx, &pb.JobActionRequest{Id: id})
			return err
		}},
}

// actionOf returns an action by its name.
func actionOf(name string) *action {
	for i := range actions {
		if actions[i].Name == name {
			return &actions[i]
		}
	}
	return nil
}

// allowed returns the actions that a job's state allows.
func allowed(s pb.JobState) (out []action) {
	for _, a := range actions {
		if a.allowed(s) {
			out = append(out, a)
		}
	}
	return out
}

// tokenCookie holds the token that a form has to repeat: a page from elsewhere
// cannot read it, and the browser does not send it with what such a page asks.
const tokenCookie = "ulisse_form"

// token returns the token of a browser's forms, making one if it has none.
func token(w http.ResponseWriter, r *http.Request) string {
	if c, err := r.Cookie(tokenCookie); err == nil && len(c.Value) >= 20 {
		return c.Value
	}
	var b [18]byte
	rand.Read(b[:])
	t := base64.RawURLEncoding.EncodeToString(b[:])
	http.SetCookie(w, &http.Cookie{Name: tokenCookie, Value: t, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil})
	return t
}

// readForm reads a form of so many bytes at most, and returns an error unless it repeats the token of the
// browser's cookie.
func readForm(w http.ResponseWriter, r *http.Request, most int64) error {
	r.Body = http.MaxBytesReader(w, r.Body, most)
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(formTime))
	err := r.ParseForm()
	if err == nil {
		err = r.ParseMultipartForm(most)
	}
	_ = c.SetReadDeadline(time.Time{})
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return status.Errorf(codes.InvalidArgument, "this is too much for a page, which takes %s at a time", humanize.IBytes(uint64(most)))
	case err != nil && !errors.Is(err, http.ErrNotMultipart):
		return status.Error(codes.InvalidArgument, "the form could not be read: try again")
	}
	cookie, err := r.Cookie(tokenCookie)
	if err != nil || subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(r.PostFormValue("token"))) != 1 {
		return status.Error(codes.PermissionDenied, "this form is too old, or did not come from this page, or the browser keeps no cookies: try again")
	}
	return nil
}

// maxForm bounds the form of an action.
const maxForm = 4096

// formTime is how long a browser may take to send a form.
const formTime = 2 * time.Minute

// confirmView is the page that asks before something is done.
type confirmView struct {
	Job    jobView
	Action *action
	Token  string
	Draws  string
	Error  string
}

// confirm asks whether an action is meant.
func (d *Dashboard) confirm(w http.ResponseWriter, r *http.Request) {
	d.ask(w, r, http.StatusOK, "")
}

// ask shows the question, with what was wrong with the answer before.
func (d *Dashboard) ask(w http.ResponseWriter, r *http.Request, code int, wrong string) {
	a := actionOf(r.PathValue("action"))
	if a == nil {
		d.fail(w, r, errNoPage)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	j := d.job(ctx, w, r)
	if j == nil {
		return
	}
	v := confirmView{Job: newJobView(j), Action: a, Token: token(w, r), Draws: r.PostFormValue("draws"), Error: wrong}
	if v.Draws == "" {
		v.Draws = strconv.Itoa(max(100, int(j.GetProgress().GetDraws())))
	}
	d.page(w, r, code, page{Title: a.Word + " " + title(j), Section: "jobs"}, "confirm", v)
}

// act does what was confirmed.
func (d *Dashboard) act(w http.ResponseWriter, r *http.Request) {
	a := actionOf(r.PathValue("action"))
	if a == nil {
		d.fail(w, r, errNoPage)
		return
	}
	err := readForm(w, r, maxForm)
	if err != nil {
		d.ask(w, r, httpStatus(err), plain(err))
		return
	}
	var draws int64
	if a.Draws { // how many are too many is for the coordinator to say
		if draws, err = strconv.ParseInt(strings.TrimSpace(r.PostFormValue("draws")), 10, 32); err != nil || draws < 1 {
			d.ask(w, r, http.StatusBadRequest, "Give a positive whole number of draws.")
			return
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	id := r.PathValue("id")
	if err := a.do(ctx, d.jobs, id, int32(draws)); err != nil {
		d.ask(w, r, httpStatus(err), plain(err))
		return
	}
	d.Logger.Info("action from the dashboard", "job", id, "action", a.Name, "who", d.viewer(r).GetUser())
	http.Redirect(w, r, "/jobs/"+id+"?done="+a.Name, http.StatusSeeOther)
}
