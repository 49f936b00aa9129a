package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
	"github.com/ulisse-gp/ulisse/internal/latent"
)

// latents is the folder of the latent vectors that a run goes on from, beside its
// journal: a file for each encoding, by its hash. It is there if there are any.
type latents string

func (l latents) path(r latent.Ref) string { return filepath.Join(string(l), r.SHA256) }

// put writes an encoding to disk, if there is one.
func (l latents) put(blob []byte) error {
	if blob == nil {
		return nil
	}
	path := l.path(latent.RefOf(blob))
	if _, err := os.Stat(path); err == nil {
		return nil // two chains may have the same
	}
	err := os.Mkdir(string(l), 0o755)
	if err == nil {
		err = atomicfile.SyncDir(filepath.Dir(string(l)))
	}
	if err == nil || errors.Is(err, fs.ErrExist) {
		err = atomicfile.WriteBytes(path, 0o644, blob)
	}
	if err != nil {
		return fmt.Errorf("keeping the latent vectors: %w", err)
	}
	return nil
}

// get reads an encoding.
func (l latents) get(r latent.Ref) ([]byte, error) {
	blob, err := os.ReadFile(l.path(r))
	if err == nil && latent.RefOf(blob) != r {
		err = fmt.Errorf("%s is damaged", l.path(r))
	}
	if err != nil {
		return nil, fmt.Errorf("the latent vectors that the journal names: %w", err)
	}
	return blob, nil
}

// drop removes what was named before and is no more.
func (l latents) drop(before, after []latent.Ref) error {
	for _, r := range before {
		if r.IsZero() || slices.Contains(after, r) {
			continue
		}
		if err := os.Remove(l.path(r)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing latent vectors: %w", err)
		}
	}
	return nil
}

// trim removes what a crash left that is not named.
func (l latents) trim(named []latent.Ref) error {
	files, err := os.ReadDir(string(l))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, f := range files {
		if !slices.ContainsFunc(named, func(r latent.Ref) bool { return r.SHA256 == f.Name() }) {
			err = errors.Join(err, os.Remove(filepath.Join(string(l), f.Name())))
		}
	}
	return err
}
