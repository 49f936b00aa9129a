package state

import "errors"

// Tick tells that live drivers are at work on jobs. Time between ticks that lie far
// apart is time at rest, which counts for no limit: nobody drove the jobs, or the whole
// cluster was down. Ticks are small and write no more than a time for each job.
type Tick struct {
	Jobs []string `json:"jobs"`
}

func (k *Tick) format() uint64 { return 2 }

func (k *Tick) apply(x *transaction) (*Job, error) {
	for _, id := range k.Jobs {
		j, err := GetJob(x.Tx, id)
		if errors.Is(err, ErrUnknownJob) { // deleted meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		if !j.Phase.AtWork() {
			continue
		}
		if j.stayAlive(x.time) {
			err = putJob(x.Tx, j)
		} else {
			err = putLive(x.Tx, j)
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}
