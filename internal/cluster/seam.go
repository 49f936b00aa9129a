package cluster

import "github.com/ulisse-gp/ulisse/internal/failpoint"

// seam is where tests come between the steps of a node: it is told of each before
// it is taken, and of the last of some once it is done, and may hold it up or let
// it fail. There is none but in tests.
type seam func(point string) error

func (s seam) at(point string) error {
	failpoint.At(point)
	if s == nil {
		return nil
	}
	return s(point)
}
