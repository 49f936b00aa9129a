package dashboard

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

func TestAnnotate(t *testing.T) {
	s := newSite(t, Config{})
	s.change("j1", func(j *pb.Job) { j.Note, j.Tags = "see <the paper>\nfigure 3", []string{"paper", "slow"} }, 0)
	s.want("/jobs", 200, `<a class="tag" href="/jobs?tag=slow">slow</a>`)
	s.want("/jobs/j1", 200, "see &lt;the paper&gt;\nfigure 3", `href="/jobs?tag=paper"`, `href="/jobs/j1/annotate"`)
	page := s.want("/jobs/j1/annotate", 200, `name="tags" value="paper slow"`, "see &lt;the paper&gt;\nfigure 3</textarea>")
	form := formOf(page)
	form.Set("note", " other\r\nlines ")
	form.Set("tags", "slow, fast  new")
	if code, _ := s.post("/jobs/j1/annotate", nil, form); code != 200 || len(s.written) != 1 {
		t.Fatalf("%d, %v", code, s.written)
	}
	if r := s.written[0]; r.Id != "j1" || r.GetNote() != "other\nlines" || !slices.Equal(r.Tag, []string{"fast", "new"}) || !slices.Equal(r.Untag, []string{"paper"}) {
		t.Errorf("asked for %v", r)
	}
	s.fail = status.Error(codes.InvalidArgument, `"a&b" is not a tag`)
	form.Set("tags", "a&b")
	if code, text := s.post("/jobs/j1/annotate", nil, form); code != 400 || !strings.Contains(text, "&#34;a&amp;b&#34; is not a tag") || !strings.Contains(text, `value="a&amp;b"`) || !strings.Contains(text, "other\nlines</textarea>") {
		t.Errorf("refused: %d", code)
	}
	n := len(s.written)
	form.Set("token", "forged")
	if code, _ := s.post("/jobs/j1/annotate", nil, form); code != 403 || len(s.written) != n {
		t.Errorf("forged: %d", code)
	}
	s.want("/jobs/none/annotate", 404)
}

// A list of a tag's jobs has these alone; who may not change a job is not offered to.
func TestTagsAreSearched(t *testing.T) {
	s := newSite(t, as(&pb.Identity{User: "eve", Role: "submitter"}))
	s.add("j2", "second", pb.JobState_JOB_STATE_CONVERGED, 2, 40)
	s.change("j2", func(j *pb.Job) { j.Tags = []string{"paper"} }, 0)
	if text := s.want("/jobs?tag=paper", 200, ">second<", `name="tag" value="paper"`); strings.Contains(text, ">first<") {
		t.Error("a job without the tag is listed")
	}
	s.want("/jobs?tag=none", 200, "No job is like that")
	if text := s.want("/jobs/j2", 200, ">paper<"); strings.Contains(text, "/jobs/j2/annotate") {
		t.Error("somebody else's job can be annotated")
	}
}

// A note that is changed after the job has ended comes to a page that is open.
func TestNotesComeByThemselves(t *testing.T) {
	s := newSite(t, Config{})
	s.change("j1", func(j *pb.Job) { j.State = pb.JobState_JOB_STATE_CONVERGED }, 0)
	s.stream("/events/jobs/j1", func(m message) bool {
		if m.ID == "note" && !strings.Contains(m.HTML, "later") {
			s.change("j1", func(j *pb.Job) { j.Note = "later" }, 0)
		}
		return m.ID == "note" && strings.Contains(m.HTML, "later")
	})
}
