package state

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

func TestAnnotate(t *testing.T) {
	r := newReplica(t)
	text := func(s string) *string { return &s }
	if _, err := r.apply(t, epoch, &Submit{ID: "a", Chains: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.apply(t, epoch, &Act{Job: "a", Action: Cancel}); err != nil {
		t.Fatal(err)
	}
	many := make([]string, MaxTags)
	for i := range many {
		many[i] = "t" + strings.Repeat("x", i)
	}
	for _, c := range []struct {
		what string
		cmd  Annotate
		err  error
		note string
		tags string
	}{
		{"a note and tags, of a job that has ended", Annotate{Note: text("first\ntry"), Tag: []string{"slow", "Ärger", "slow"}}, nil, "first\ntry", "slow Ärger"},
		{"nothing", Annotate{}, nil, "first\ntry", "slow Ärger"},
		{"other tags", Annotate{Tag: []string{"fast"}, Untag: []string{"slow", "never"}}, nil, "first\ntry", "fast Ärger"},
		{"no note", Annotate{Note: text("")}, nil, "", "fast Ärger"},
		{"too many tags", Annotate{Tag: many}, ErrConflict, "", "fast Ärger"},
		{"no tag", Annotate{Tag: []string{""}}, ErrMalformed, "", "fast Ärger"},
		{"two words", Annotate{Tag: []string{"a b"}}, ErrMalformed, "", "fast Ärger"},
		{"a long word", Annotate{Tag: []string{strings.Repeat("x", 41)}}, ErrMalformed, "", "fast Ärger"},
		{"a long note", Annotate{Note: text(strings.Repeat("x", MaxNote+1))}, ErrMalformed, "", "fast Ärger"},
		{"no tags", Annotate{Untag: []string{"fast", "Ärger"}}, nil, "", ""},
		{"as many as there may be", Annotate{Tag: many}, nil, "", strings.Join(many, " ")},
	} {
		c.cmd.Job = "a"
		if _, err := r.apply(t, epoch, &c.cmd); !errors.Is(err, c.err) {
			t.Errorf("%s: %v", c.what, err)
		}
		if err := r.db.View(func(tx *bbolt.Tx) error {
			j, err := GetJob(tx, "a")
			if err == nil && (j.Note != c.note || strings.Join(j.Tags, " ") != c.tags || j.Phase != Cancelled) {
				t.Errorf("%s: %q, %q, %s", c.what, j.Note, j.Tags, j.Phase)
			}
			if err != nil {
				return err
			}
			_, err = Newest(tx, nil, time.Time{}, func(e Entry) bool {
				if !slices.Equal(e.Tags, strings.Fields(c.tags)) && len(e.Tags)+len(c.tags) > 0 {
					t.Errorf("%s: the index says %q", c.what, e.Tags)
				}
				return true
			})
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.apply(t, epoch, &Annotate{Job: "b"}); !errors.Is(err, ErrUnknownJob) {
		t.Errorf("no job: %v", err)
	}
	if text, err := Encode(epoch, &Annotate{Job: "a"}); err != nil || FormatOf(text) != 5 {
		t.Errorf("%s, %v", text, err)
	}
}
