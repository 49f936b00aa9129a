package state

import (
	"errors"
	"slices"
	"time"

	"go.etcd.io/bbolt"
)

// Blob is a data set that is whole and replicated.
type Blob struct {
	SHA256  string    `json:"sha256"`
	Size    int64     `json:"size"`
	Stored  time.Time `json:"stored"`
	Holders []string  `json:"holders"`
	// Namespaces are those whose data it is; none means the default one.
	Namespaces []string `json:"namespaces,omitempty"`
}

// NamespaceNames returns the namespaces whose data a blob is.
func (b *Blob) NamespaceNames() []string {
	if len(b.Namespaces) == 0 {
		return []string{DefaultNamespace}
	}
	return b.Namespaces
}

// Blobs calls f with every data set, until it returns false.
func Blobs(tx *bbolt.Tx, f func(*Blob) bool) error { return each(tx, blobsBucket, f) }

// GetBlob returns a data set, or ErrUnknownBlob.
func GetBlob(tx *bbolt.Tx, sha256 string) (*Blob, error) {
	var b Blob
	ok, err := getJSON(tx, blobsBucket, sha256, &b)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, ErrUnknownBlob
	}
	return &b, nil
}

// RecordBlob notes a data set. Namespaces are added to those that it has.
type RecordBlob struct{ Blob }

func (r *RecordBlob) apply(x *transaction) (*Job, error) {
	b := r.Blob
	old, err := GetBlob(x.Tx, b.SHA256)
	given, all := b.NamespaceNames(), []string(nil)
	switch {
	case err == nil:
		given, all = b.Namespaces, slices.Clone(old.NamespaceNames())
	case !errors.Is(err, ErrUnknownBlob):
		return nil, err
	}
	for _, n := range given {
		if !slices.Contains(all, n) {
			if err := addUsage(x.Tx, n, Usage{Bytes: b.Size}); err != nil {
				return nil, err
			}
			all = append(all, n)
		}
	}
	slices.Sort(all)
	b.Namespaces = all
	return nil, putJSON(x.Tx, blobsBucket, b.SHA256, &b)
}

// ForgetBlob forgets a data set to which no job refers. One that is not there is
// no error.
type ForgetBlob struct {
	SHA256 string `json:"sha256"`
}

func (f *ForgetBlob) apply(x *transaction) (*Job, error) {
	used := false
	Uses(x.Tx, f.SHA256, func(string, string) bool { used = true; return false })
	if used {
		return nil, conflictf("a job refers to the data")
	}
	b, err := GetBlob(x.Tx, f.SHA256)
	if errors.Is(err, ErrUnknownBlob) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, n := range b.NamespaceNames() {
		if err := addUsage(x.Tx, n, Usage{Bytes: -b.Size}); err != nil {
			return nil, err
		}
	}
	return nil, deleteKey(x.Tx, blobsBucket, f.SHA256)
}
