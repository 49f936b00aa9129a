package state

import (
	"fmt"
	"regexp"
	"slices"
)

// Bounds of what people write on a job.
const (
	MaxNote = 4000 // bytes
	MaxTags = 20
)

var tagForm = regexp.MustCompile(`^[\p{L}\p{N}][\p{L}\p{N}._:/+-]{0,39}$`)

// CheckTag returns an error unless a word can be a tag.
func CheckTag(tag string) error {
	if !tagForm.MatchString(tag) {
		return fmt.Errorf("%.60q is not a tag: one is a word of 40 letters and digits at most, with . _ : / + - between them", tag)
	}
	return nil
}

// CheckNote returns an error unless a text can be the note on a job.
func CheckNote(note string) error {
	if len(note) > MaxNote {
		return fmt.Errorf("a note of %d bytes: it has %d at most", len(note), MaxNote)
	}
	return nil
}

// Annotate changes what people write on a job: the note, and tags.
type Annotate struct {
	Job   string   `json:"job"`
	Note  *string  `json:"note,omitempty"` // nil leaves it as it is
	Tag   []string `json:"tag,omitempty"`
	Untag []string `json:"untag,omitempty"`
}

func (a *Annotate) format() uint64 { return 5 }

func (a *Annotate) apply(x *transaction) (*Job, error) {
	for _, tag := range a.Tag {
		if err := CheckTag(tag); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
	}
	return x.update(a.Job, func(u *jobUpdate) error {
		j := u.job
		if a.Note != nil {
			if err := CheckNote(*a.Note); err != nil {
				return fmt.Errorf("%w: %w", ErrMalformed, err)
			}
			j.Note = *a.Note
		}
		tags := slices.DeleteFunc(slices.Clone(j.Tags), func(t string) bool { return slices.Contains(a.Untag, t) })
		tags = append(tags, a.Tag...)
		slices.Sort(tags)
		if j.Tags = slices.Compact(tags); len(j.Tags) > MaxTags {
			return conflictf("%d tags, and a job has %d at most", len(j.Tags), MaxTags)
		}
		return nil
	})
}
