package server

import (
	"errors"
	"slices"
)

// closing is what a process has to close at its end, in reverse of the order in which
// it was opened.
type closing struct{ list []func() error }

// later has a function called by close; its error counts.
func (c *closing) later(f func() error) { c.list = append(c.list, f) }

// finally has a function called by close that cannot fail, or whose error says nothing.
func (c *closing) finally(f func()) {
	c.later(func() error {
		f()
		return nil
	})
}

// close closes everything, whatever fails, and returns all errors.
func (c *closing) close() error {
	var errs []error
	for _, f := range slices.Backward(c.list) {
		errs = append(errs, f())
	}
	c.list = nil
	return errors.Join(errs...)
}
