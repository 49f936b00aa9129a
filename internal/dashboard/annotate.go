package dashboard

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"unicode"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// annotateView is the page on which the note and the tags of a job are changed.
type annotateView struct {
	Job   jobView
	Token string
	Note  string
	Tags  string // as they are typed
	Was   string // the tags when the page was made: others may change them meanwhile
	Error string
}

func (d *Dashboard) annotatePage(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	if j := d.job(ctx, w, r); j != nil {
		tags := strings.Join(j.Tags, " ")
		d.showAnnotate(w, r, http.StatusOK, annotateView{Job: newJobView(j), Note: j.Note, Tags: tags, Was: tags})
	}
}

func (d *Dashboard) showAnnotate(w http.ResponseWriter, r *http.Request, code int, v annotateView) {
	v.Token = token(w, r)
	d.page(w, r, code, page{Title: "Note and tags of " + v.Job.Title, Section: "jobs"}, "annotate", v)
}

// annotate changes the note and the tags: of the tags those that were added or removed on the page.
func (d *Dashboard) annotate(w http.ResponseWriter, r *http.Request) {
	err := readForm(w, r, maxNoteForm)
	v := annotateView{Note: strings.TrimSpace(strings.ReplaceAll(r.PostFormValue("note"), "\r\n", "\n")), Tags: r.PostFormValue("tags"), Was: r.PostFormValue("was")}
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	id := r.PathValue("id")
	if err == nil {
		now, was := words(v.Tags), words(v.Was)
		_, err = d.jobs.Annotate(ctx, &pb.AnnotateRequest{Id: id, Note: &v.Note, Tag: without(now, was), Untag: without(was, now)})
	}
	if err != nil {
		j := d.job(ctx, w, r)
		if j == nil {
			return
		}
		v.Job, v.Error = newJobView(j), plain(err)
		d.showAnnotate(w, r, httpStatus(err), v)
		return
	}
	http.Redirect(w, r, "/jobs/"+id, http.StatusSeeOther)
}

// maxNoteForm bounds the form of a note and tags.
const maxNoteForm = 64 << 10

// words returns the words of a text, which spaces and commas part.
func words(text string) []string {
	return strings.FieldsFunc(text, func(c rune) bool { return unicode.IsSpace(c) || c == ',' })
}

// without returns the words that are not among others.
func without(words, others []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return slices.Contains(others, w) })
}
