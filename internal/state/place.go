package state

import (
	"fmt"
	"slices"
	"strings"
)

// Place moves chains of a job to workers.
type Place struct {
	Job    string `json:"job"`
	Places []Move `json:"places"`
}

// Move is a chain's new place. No worker means that it has none for now.
type Move struct {
	Chain  int      `json:"chain"`
	Worker string   `json:"worker,omitempty"`
	Group  []string `json:"group,omitempty"`
	Secret string   `json:"secret,omitempty"` // of the attempt, if it is a new one
}

// ChainKey names a chain of a job, or another lane (package chains); 0 is that of the
// run as a whole.
type ChainKey struct {
	Job   string
	Chain int
}

func (p *Place) format() uint64 {
	if slices.ContainsFunc(p.Places, func(m Move) bool { return m.Secret != "" }) {
		return 2
	}
	return 0 // any
}

func (p *Place) apply(x *transaction) (*Job, error) {
	return x.update(p.Job, func(u *jobUpdate) error {
		j := u.job
		if j.Phase.Ended() {
			return ErrPhase
		}
		for _, m := range p.Places {
			if m.Chain < 0 || m.Chain >= len(j.Placements) {
				return ErrMalformed
			}
			if m.Worker != "" && j.Phase == Paused {
				return ErrPhase
			}
			before := j.Placements[m.Chain].Attempt
			j.place(m.Chain, m.Worker, m.Group)
			if at := &j.Placements[m.Chain]; at.Attempt != before && m.Worker != "" {
				at.Secret = m.Secret
			}
		}
		u.note(NotePlaced, "%s", p.describe(j))
		if j.Placed() && j.Phase == Queued {
			to, err := u.workPhase()
			if err != nil {
				return err
			}
			j.move(to, u.time)
			j.Message = ""
		}
		return nil
	})
}

// maxDescribed bounds the chains that a note of placements names.
const maxDescribed = 8

// describe says where the chains are placed.
func (p *Place) describe(j *Job) string {
	var where []string
	for _, m := range p.Places {
		at := &j.Placements[m.Chain]
		who := fmt.Sprintf("chain %d", m.Chain)
		if m.Chain == 0 {
			who = "preparation"
		}
		switch {
		case at.Worker == "":
			where = append(where, who+" waits for a worker")
		case len(at.Group) > 0:
			where = append(where, fmt.Sprintf("%s on %s with %s", who, at.Worker, strings.Join(at.Group, ", ")))
		default:
			where = append(where, who+" on "+at.Worker)
		}
	}
	if len(where) > maxDescribed {
		where = append(slices.Clone(where[:maxDescribed]), fmt.Sprintf("and %d more", len(where)-maxDescribed))
	}
	return strings.Join(where, "; ")
}
