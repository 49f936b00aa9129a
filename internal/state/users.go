package state

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"go.etcd.io/bbolt"
)

var (
	tokensBucket     = []byte("tokens")     // id → Token
	namespacesBucket = []byte("namespaces") // name → Quota
	usageBucket      = []byte("usage")      // name of a namespace → Usage
	secretsBucket    = []byte("secrets")    // nodeKey → NodeKey
)

// DefaultNamespace is that of jobs and data for which nobody named another. It
// is always there.
const DefaultNamespace = "default"

// AllNamespaces, among a token's namespaces, stands for every one.
const AllNamespaces = "*"

// Role is what a token lets its bearer do.
type Role string

// The roles. Each of the first three may do what those before it may.
const (
	Viewer    Role = "viewer"    // look
	Submitter Role = "submitter" // submit jobs and data, and look after its own jobs
	Admin     Role = "admin"     // everything in its namespaces; in all of them, also the cluster
	WorkerBot Role = "worker"    // what workers call, where they have no certificates
	BackupBot Role = "backup"    // make a backup; from format 2 on
)

// Token is a bearer token as it is remembered: by its hash.
type Token struct {
	ID         string    `json:"id"`
	Name       string    `json:"name"` // of the user
	Role       Role      `json:"role"`
	Namespaces []string  `json:"namespaces"`
	Hash       string    `json:"hash"` // SHA-256 of the secret, in hex
	Created    time.Time `json:"created"`
	Expires    time.Time `json:"expires,omitzero"`
	Revoked    time.Time `json:"revoked,omitzero"`
	CreatedBy  string    `json:"created_by,omitempty"`
}

// Live reports whether a token is valid at t.
func (k *Token) Live(t time.Time) bool {
	return k.Revoked.IsZero() && (k.Expires.IsZero() || t.Before(k.Expires))
}

// Revoke ends a token's validity.
type Revoke struct {
	ID string `json:"id"`
}

// Quota bounds what a namespace may use. Zero means no bound.
type Quota struct {
	Jobs   int64 `json:"jobs,omitempty"`   // that have not ended
	Chains int64 `json:"chains,omitempty"` // of those
	Draws  int64 `json:"draws,omitempty"`  // that all its jobs may keep
	Bytes  int64 `json:"bytes,omitempty"`  // of its data sets
}

// Usage is what a namespace uses, in the units of Quota.
type Usage Quota

// SetNamespace makes a namespace, or changes its quota.
type SetNamespace struct {
	Name  string `json:"name"`
	Quota Quota  `json:"quota"`
	Fresh bool   `json:"fresh,omitempty"` // it must not be there; otherwise it must
}

// DropNamespace removes a namespace that nothing is in.
type DropNamespace struct {
	Name string `json:"name"`
}

// NodeKey is the secret by which coordinators know each other where they have no
// certificates.
type NodeKey struct {
	Key string `json:"key"`
}

var (
	// ErrQuota is returned for what a namespace's quota does not allow.
	ErrQuota = errors.New("the namespace's quota is used up")
	// ErrNamespace is returned for a namespace that there is not.
	ErrNamespace = errors.New("there is no such namespace")
	// ErrToken is returned for a token that there is not.
	ErrToken = errors.New("there is no such token")
)

// Bounds of what is remembered of users.
const (
	maxTokens     = 10_000
	maxNamespaces = 1_000
	forgetTokens  = 30 * 24 * time.Hour // after their end
)

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,99}$`)

// CheckName returns an error for what cannot be the name of a user or of a
// namespace.
func CheckName(s string) error {
	if !nameForm.MatchString(s) {
		return fmt.Errorf("%w: a name has letters, digits, '.', '_', '-' and '@', 100 at most", ErrMalformed)
	}
	return nil
}

// space returns a namespace's name.
func space(name string) string {
	if name == "" {
		return DefaultNamespace
	}
	return name
}

// Space returns the namespace of a job.
func (j *Job) Space() string { return space(j.Namespace) }

// Spaces returns the namespaces whose data a blob is.
func (b *Blob) Spaces() []string {
	if len(b.Namespaces) == 0 {
		return []string{DefaultNamespace}
	}
	return b.Namespaces
}

// GetToken returns a token, or ErrToken.
func GetToken(tx *bbolt.Tx, id string) (*Token, error) {
	var k Token
	ok, err := get(tx, tokensBucket, id, &k)
	if err == nil && !ok {
		err = ErrToken
	}
	return &k, err
}

// Tokens calls f with every token, until it returns false.
func Tokens(tx *bbolt.Tx, f func(*Token) bool) error { return each(tx, tokensBucket, f) }

// GetNodeKey returns the coordinators' key, empty if there is none yet.
func GetNodeKey(tx *bbolt.Tx) (string, error) {
	var k NodeKey
	_, err := get(tx, secretsBucket, "node", &k)
	return k.Key, err
}

// GetNamespace returns the quota of a namespace and what it uses, or
// ErrNamespace.
func GetNamespace(tx *bbolt.Tx, name string) (q Quota, u Usage, err error) {
	ok, err := get(tx, namespacesBucket, name, &q)
	if err == nil && !ok && name != DefaultNamespace {
		err = ErrNamespace
	}
	if err == nil {
		_, err = get(tx, usageBucket, name, &u)
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

func createToken(tx *bbolt.Tx, k *Token, t time.Time) error {
	if err := CheckName(k.Name); err != nil {
		return err
	}
	if k.ID == "" || len(k.Hash) != 64 || len(k.Namespaces) == 0 || !slices.Contains([]Role{Viewer, Submitter, Admin, WorkerBot, BackupBot}, k.Role) {
		return ErrMalformed
	}
	for _, n := range k.Namespaces {
		if n == AllNamespaces {
			continue
		}
		if _, _, err := GetNamespace(tx, n); err != nil {
			return fmt.Errorf("%w: %q", err, n)
		}
	}
	if _, err := GetToken(tx, k.ID); !errors.Is(err, ErrToken) {
		return fmt.Errorf("%w: the id %s is taken", ErrMalformed, k.ID)
	}
	count := 0
	var old []string
	err := Tokens(tx, func(k *Token) bool {
		count++
		end := k.Expires
		if !k.Revoked.IsZero() {
			end = k.Revoked
		}
		if !end.IsZero() && t.Sub(end) > forgetTokens {
			old = append(old, k.ID)
		}
		return true
	})
	if err != nil {
		return err
	}
	for _, id := range old {
		if err := remove(tx, tokensBucket, id); err != nil {
			return err
		}
	}
	if count-len(old) >= maxTokens {
		return fmt.Errorf("%w: there are %d tokens", ErrQuota, count)
	}
	return put(tx, tokensBucket, k.ID, k)
}

func revokeToken(tx *bbolt.Tx, id string, t time.Time) error {
	k, err := GetToken(tx, id)
	if err != nil || !k.Revoked.IsZero() {
		return err
	}
	k.Revoked = t
	return put(tx, tokensBucket, id, k)
}

func setNamespace(tx *bbolt.Tx, s *SetNamespace) error {
	if err := CheckName(s.Name); err != nil {
		return err
	}
	if q := s.Quota; min(q.Jobs, q.Chains, q.Draws, q.Bytes) < 0 {
		return fmt.Errorf("%w: a quota is not negative", ErrMalformed)
	}
	_, _, err := GetNamespace(tx, s.Name)
	if s.Fresh {
		if err == nil {
			return fmt.Errorf("%w: there is a namespace %q already", ErrPhase, s.Name)
		}
		if n := len(Namespaces(tx)); n >= maxNamespaces {
			return fmt.Errorf("%w: there are %d namespaces", ErrQuota, n)
		}
	} else if err != nil {
		return err
	}
	return put(tx, namespacesBucket, s.Name, s.Quota)
}

func dropNamespace(tx *bbolt.Tx, name string, t time.Time) error {
	_, u, err := GetNamespace(tx, name)
	if err != nil {
		return err
	}
	if name == DefaultNamespace {
		return fmt.Errorf("%w: the namespace %q is always there", ErrPhase, name)
	}
	held := u.Bytes > 0
	err = Jobs(tx, func(j *Job) bool { held = held || j.Space() == name; return !held })
	if err != nil {
		return err
	}
	if held {
		return fmt.Errorf("%w: the namespace %q has jobs or data: delete the jobs; data go a day after the last job", ErrPhase, name)
	}
	bound := false
	err = Tokens(tx, func(k *Token) bool {
		bound = bound || k.Live(t) && slices.Contains(k.Namespaces, name)
		return !bound
	})
	if err != nil {
		return err
	}
	if bound {
		return fmt.Errorf("%w: there are tokens for the namespace %q: revoke them", ErrPhase, name)
	}
	if err := remove(tx, usageBucket, name); err != nil {
		return err
	}
	return remove(tx, namespacesBucket, name)
}

// use adds to what a namespace uses, and refuses what its quota does not allow.
// What is given back is always taken.
func use(tx *bbolt.Tx, name string, more Usage) error {
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
	u = Usage{Jobs: u.Jobs + more.Jobs, Chains: u.Chains + more.Chains, Draws: u.Draws + more.Draws, Bytes: u.Bytes + more.Bytes}
	if u == (Usage{}) {
		return remove(tx, usageBucket, name)
	}
	return put(tx, usageBucket, name, u)
}

// Room returns ErrQuota if a namespace may not have so many bytes more.
func Room(tx *bbolt.Tx, name string, bytes int64) error {
	q, u, err := GetNamespace(tx, name)
	if err == nil && q.Bytes > 0 && u.Bytes+bytes > q.Bytes {
		err = fmt.Errorf("%w: %q may have %d bytes of data, has %d, and this needs %d", ErrQuota, name, q.Bytes, u.Bytes, bytes)
	}
	return err
}

// putBlob notes a data set. Namespaces are added to those that it has.
func putBlob(tx *bbolt.Tx, b *Blob) error {
	old, err := GetBlob(tx, b.SHA256)
	var had []string
	switch {
	case err == nil:
		had = old.Spaces()
	case !errors.Is(err, ErrUnknown):
		return err
	}
	all := slices.Clone(had)
	given := b.Namespaces
	if len(had) == 0 {
		given = b.Spaces()
	}
	for _, n := range given {
		if !slices.Contains(all, n) {
			if err := use(tx, n, Usage{Bytes: b.Size}); err != nil {
				return err
			}
			all = append(all, n)
		}
	}
	slices.Sort(all)
	b.Namespaces = all
	return put(tx, blobsBucket, b.SHA256, b)
}

// count makes the usage anew of what there is: for a state of a version that did
// not keep it.
func count(tx *bbolt.Tx) error {
	usage := map[string]Usage{}
	err := Jobs(tx, func(j *Job) bool {
		u := usage[j.Space()]
		u.Draws += j.Keeps
		if !j.Phase.Ended() {
			u.Jobs, u.Chains = u.Jobs+1, u.Chains+int64(j.Chains)
		}
		usage[j.Space()] = u
		return true
	})
	if err != nil {
		return err
	}
	err = Blobs(tx, func(b *Blob) bool {
		for _, n := range b.Spaces() {
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
			err = put(tx, namespacesBucket, name, Quota{})
		}
		if err == nil {
			err = put(tx, usageBucket, name, u)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
