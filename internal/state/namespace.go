package state

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"go.etcd.io/bbolt"
)

// DefaultNamespace is that of jobs and data for which nobody named another. It
// always exists.
const DefaultNamespace = "default"

// maxNamespaces bounds how many there are.
const maxNamespaces = 1_000

var (
	// ErrQuota is returned for what a namespace's quota does not allow.
	ErrQuota = errors.New("the namespace's quota is used up")
	// ErrNamespace is returned for a namespace that does not exist.
	ErrNamespace = errors.New("there is no such namespace")
)

// Quota bounds what a namespace may use. Zero means no bound.
type Quota struct {
	Jobs   int64 `json:"jobs,omitempty"`   // that have not ended
	Chains int64 `json:"chains,omitempty"` // of those
	Draws  int64 `json:"draws,omitempty"`  // that all its jobs may keep
	Bytes  int64 `json:"bytes,omitempty"`  // of its data sets
}

// Usage is what a namespace uses, in the units of Quota.
type Usage Quota

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,99}$`)

// CheckName returns an error for what cannot be the name of a user or of a
// namespace.
func CheckName(s string) error {
	if !nameForm.MatchString(s) {
		return fmt.Errorf("%w: a name has letters, digits, '.', '_', '-' and '@', 100 at most", ErrMalformed)
	}
	return nil
}

// orDefault returns a namespace's name, the default one's for none.
func orDefault(name string) string { return cmp.Or(name, DefaultNamespace) }

// GetNamespace returns the quota of a namespace and what it uses, or
// ErrNamespace.
func GetNamespace(tx *bbolt.Tx, name string) (q Quota, u Usage, err error) {
	ok, err := getJSON(tx, namespacesBucket, name, &q)
	if err == nil && !ok && name != DefaultNamespace {
		err = ErrNamespace
	}
	if err == nil {
		_, err = getJSON(tx, usageBucket, name, &u)
	}
	return q, u, err
}

// Namespaces returns the names of all namespaces, in order.
func Namespaces(tx *bbolt.Tx) []string {
	out := []string{DefaultNamespace}
	c := tx.Bucket(namespacesBucket).Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		if string(k) != DefaultNamespace {
			out = append(out, string(k))
		}
	}
	slices.Sort(out)
	return out
}

// SetNamespace makes a namespace, or changes its quota.
type SetNamespace struct {
	Name  string `json:"name"`
	Quota Quota  `json:"quota"`
	Fresh bool   `json:"fresh,omitempty"` // it must be new; otherwise it must exist
}

func (s *SetNamespace) apply(x *transaction) (*Job, error) {
	if err := CheckName(s.Name); err != nil {
		return nil, err
	}
	if q := s.Quota; min(q.Jobs, q.Chains, q.Draws, q.Bytes) < 0 {
		return nil, fmt.Errorf("%w: a quota is not negative", ErrMalformed)
	}
	_, _, err := GetNamespace(x.Tx, s.Name)
	if s.Fresh {
		if err == nil {
			return nil, conflictf("there is a namespace %q already", s.Name)
		}
		if n := len(Namespaces(x.Tx)); n >= maxNamespaces {
			return nil, fmt.Errorf("%w: there are %d namespaces", ErrQuota, n)
		}
	} else if err != nil {
		return nil, err
	}
	return nil, putJSON(x.Tx, namespacesBucket, s.Name, s.Quota)
}

// DropNamespace removes a namespace that nothing is in.
type DropNamespace struct {
	Name string `json:"name"`
}

func (d *DropNamespace) apply(x *transaction) (*Job, error) {
	_, u, err := GetNamespace(x.Tx, d.Name)
	if err != nil {
		return nil, err
	}
	if d.Name == DefaultNamespace {
		return nil, conflictf("the namespace %q is always there", d.Name)
	}
	held := u.Bytes > 0
	err = Jobs(x.Tx, func(j *Job) bool { held = held || j.NamespaceName() == d.Name; return !held })
	if err != nil {
		return nil, err
	}
	if held {
		return nil, conflictf("the namespace %q has jobs or data: delete the jobs; data go a day after the last job", d.Name)
	}
	bound, err := hasTokens(x.Tx, d.Name, x.time)
	if err != nil {
		return nil, err
	}
	if bound {
		return nil, conflictf("there are tokens for the namespace %q: revoke them", d.Name)
	}
	return nil, errors.Join(deleteKey(x.Tx, usageBucket, d.Name), deleteKey(x.Tx, namespacesBucket, d.Name))
}

// hasTokens reports whether a valid token is for a namespace.
func hasTokens(tx *bbolt.Tx, namespace string, t time.Time) (found bool, err error) {
	err = Tokens(tx, func(k *Token) bool {
		found = found || k.Live(t) && slices.Contains(k.Namespaces, namespace)
		return !found
	})
	return found, err
}

// CheckQuota returns ErrQuota if a namespace may not use that much more. What is given back is always taken.
func CheckQuota(tx *bbolt.Tx, name string, more Usage) error {
	q, u, err := GetNamespace(tx, name)
	if err != nil {
		return fmt.Errorf("%w: %q", err, name)
	}
	for _, b := range []struct {
		what              string
		more, bound, used int64
	}{
		{"jobs that have not ended", more.Jobs, q.Jobs, u.Jobs},
		{"chains of jobs that have not ended", more.Chains, q.Chains, u.Chains},
		{"draws that its jobs may keep", more.Draws, q.Draws, u.Draws},
		{"bytes of data", more.Bytes, q.Bytes, u.Bytes},
	} {
		if b.more > 0 && b.bound > 0 && b.used+b.more > b.bound {
			return fmt.Errorf("%w: %q may have %d %s, has %d, and this needs %d", ErrQuota, name, b.bound, b.what, b.used, b.more)
		}
	}
	return nil
}

// addUsage adds to what a namespace uses, and refuses what its quota does not allow.
func addUsage(tx *bbolt.Tx, name string, more Usage) error {
	if err := CheckQuota(tx, name, more); err != nil {
		return err
	}
	_, u, err := GetNamespace(tx, name)
	if err != nil {
		return err
	}
	u = Usage{Jobs: u.Jobs + more.Jobs, Chains: u.Chains + more.Chains, Draws: u.Draws + more.Draws, Bytes: u.Bytes + more.Bytes}
	if u == (Usage{}) {
		return deleteKey(tx, usageBucket, name)
	}
	return putJSON(tx, usageBucket, name, u)
}

// initUsage counts what there is, for a state of a version that did not keep the
// usage.
func initUsage(tx *bbolt.Tx) error {
	usage := map[string]Usage{}
	err := Jobs(tx, func(j *Job) bool {
		u := usage[j.NamespaceName()]
		u.Draws += j.Keeps
		if !j.Phase.Ended() {
			u.Jobs, u.Chains = u.Jobs+1, u.Chains+int64(j.Chains)
		}
		usage[j.NamespaceName()] = u
		return true
	})
	if err != nil {
		return err
	}
	err = Blobs(tx, func(b *Blob) bool {
		for _, n := range b.NamespaceNames() {
			u := usage[n]
			u.Bytes += b.Size
			usage[n] = u
		}
		return true
	})
	if err != nil {
		return err
	}
	for name, u := range usage {
		if u == (Usage{}) {
			continue
		}
		_, _, err := GetNamespace(tx, name)
		if errors.Is(err, ErrNamespace) { // which older versions took as given
			err = putJSON(tx, namespacesBucket, name, Quota{})
		}
		if err == nil {
			err = putJSON(tx, usageBucket, name, u)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
