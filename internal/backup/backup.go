// Package backup keeps copies of a cluster in a folder: its state, its tables, and the
// latent vectors that its chains go on from.
//
//	FOLDER/20260102T030405Z.json      what the copy of that time is made of; it is written last
//	FOLDER/20260102T030405Z.state     the replicated state, as 'ulisse cluster backup FILE' writes it
//	FOLDER/data/SHA256                tables and latent vectors, each once, whatever the number of copies that need it
//
// So a nightly copy moves only tables that are new, and a folder can be copied elsewhere by
// any program.
package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/latent"
	"github.com/ulisse-gp/ulisse/internal/sealed"
	"github.com/ulisse-gp/ulisse/internal/version"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// Cluster is what a copy is made of, and restored into, with its tables.
type Cluster interface {
	Store
	Backup(ctx context.Context, w io.Writer) (int64, error)
	Restore(ctx context.Context, r io.Reader) (*pb.MembersResponse, error)
}

// Store is what keeps a cluster's tables, or its latent vectors.
type Store interface {
	Blobs(ctx context.Context) ([]*pb.Blob, error)
	Download(ctx context.Context, sha string, w io.Writer) (int64, error)
	UploadFile(ctx context.Context, path string, progress func(present, size int64)) (*pb.Blob, error)
}

// Copy is one copy of a cluster.
type Copy struct {
	Name    string    `json:"-"` // of its files: its time
	Format  int       `json:"format"`
	Time    time.Time `json:"time"`
	Version string    `json:"version"` // of the program that wrote it
	State   Part      `json:"state"`
	Tables  []Part    `json:"tables"`
	Latents []Part    `json:"latents,omitempty"`
}

// Part is a file of a copy.
type Part struct {
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

const (
	format     = 2 // 2: latent vectors, a checksum
	nameLayout = "20060102T150405Z"
	dataFolder = "data"
)

// Folder is where copies are kept.
type Folder string

func (f Folder) manifest(name string) string { return filepath.Join(string(f), name+".json") }
func (f Folder) state(name string) string    { return filepath.Join(string(f), name+".state") }
func (f Folder) table(sha string) string     { return filepath.Join(string(f), dataFolder, sha) }

// Add copies the cluster into the folder. It returns the copy, and how many of
// its bytes were not there before.
//
// The state comes first: a table that it needs is in the list that is asked for
// afterwards. One that is deleted meanwhile was needed by no job. Latent vectors come
// right after it, and it is copied again where chains have moved on too far.
func (f Folder) Add(ctx context.Context, c Cluster, latents Store, now time.Time) (*Copy, int64, error) {
	copied := &Copy{Name: now.UTC().Format(nameLayout), Format: format, Time: now.UTC().Truncate(time.Second), Version: version.Version, Tables: []Part{}}
	if err := os.MkdirAll(filepath.Join(string(f), dataFolder), 0o700); err != nil {
		return nil, 0, fmt.Errorf("the folder of backups: %w", err)
	}
	if _, err := os.Stat(f.manifest(copied.Name)); err == nil {
		return nil, 0, fmt.Errorf("%s has a backup of this second: %s", f, copied.Name)
	}
	moved, err := int64(0), errMovedOn
	for try := 0; try < stateTries && errors.Is(err, errMovedOn); try++ {
		var n int64
		n, err = f.addState(ctx, c, latents, copied)
		moved += n
	}
	if err != nil {
		return nil, 0, err
	}
	blobs, err := c.Blobs(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, b := range blobs {
		if !b.Complete {
			continue // an upload that has not ended
		}
		n, err := f.fetch(ctx, c, b)
		if client.NotFound(err) && len(b.Jobs) == 0 {
			continue
		}
		if err != nil {
			return nil, 0, fmt.Errorf("table %s: %w", b.Sha256, err)
		}
		moved += n
		copied.Tables = append(copied.Tables, Part{b.Sha256, b.Size})
	}
	text, err := sealed.Marshal(copied)
	if err == nil {
		err = atomicfile.WriteBytes(f.manifest(copied.Name), 0o600, text)
	}
	return copied, moved, err
}

// stateTries is how often a state is copied whose chains move on.
const stateTries = 4

var errMovedOn = errors.New("the chains moved on before the latent vectors that the state names were copied: try again when the cluster has less to do")

// addState copies the state and the latent vectors that it names, and returns the bytes
// that it took. What was superseded after the state was read is kept by the cluster for
// latent.Superseded: whatever is in a list of that time, and is copied, is all.
func (f Folder) addState(ctx context.Context, c Cluster, latents Store, copied *Copy) (moved int64, err error) {
	began := time.Now()
	if copied.State, err = write(f.state(copied.Name), func(w io.Writer) error { _, err := c.Backup(ctx, w); return err }); err != nil {
		return 0, err
	}
	moved, copied.Latents = copied.State.Size, nil
	blobs, err := latents.Blobs(ctx)
	if err != nil {
		return moved, err
	}
	if len(blobs) > 0 && time.Since(began) > latent.Superseded {
		return moved, errMovedOn
	}
	for _, b := range blobs {
		if !b.Complete {
			continue
		}
		n, err := f.fetch(ctx, latents, b)
		if client.NotFound(err) {
			return moved, errMovedOn
		}
		if err != nil {
			return moved, fmt.Errorf("latent vectors %s: %w", b.Sha256, err)
		}
		moved += n
		copied.Latents = append(copied.Latents, Part{b.Sha256, b.Size})
	}
	return moved, nil
}

// fetch brings a blob into the folder if it is not there, and returns the bytes
// that it took.
func (f Folder) fetch(ctx context.Context, c Store, b *pb.Blob) (int64, error) {
	if info, err := os.Stat(f.table(b.Sha256)); err == nil && info.Size() == b.Size {
		return 0, nil
	}
	p, err := write(f.table(b.Sha256), func(w io.Writer) error { _, err := c.Download(ctx, b.Sha256, w); return err })
	return p.Size, err
}

// write makes a file, whole or not at all, and says what it holds. Only its owner may read it:
// the state holds the cluster's keys.
func write(path string, content func(io.Writer) error) (Part, error) {
	h := &counter{hash: sha256.New()}
	err := atomicfile.Write(path, 0o600, func(w io.Writer) error { return content(io.MultiWriter(w, h)) })
	return Part{hex.EncodeToString(h.hash.Sum(nil)), h.size}, err
}

type counter struct {
	hash interface {
		io.Writer
		Sum([]byte) []byte
	}
	size int64
}

func (c *counter) Write(p []byte) (int, error) {
	c.size += int64(len(p))
	return c.hash.Write(p)
}

// Copies returns the copies of the folder, the newest last.
func (f Folder) Copies() ([]*Copy, error) {
	files, err := filepath.Glob(f.manifest("*"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var out []*Copy
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		c := &Copy{Name: strings.TrimSuffix(filepath.Base(path), ".json")}
		if err := sealed.Unmarshal(text, c); err != nil {
			return nil, fmt.Errorf("the backup %s cannot be read: %w", path, err)
		}
		if c.Format > format {
			return nil, fmt.Errorf("%s was written by a later version (%s): restore it with that one", path, c.Version)
		}
		out = append(out, c)
	}
	return out, nil
}

// Find returns the copy of that name, or the newest if the name is empty.
func (f Folder) Find(name string) (*Copy, error) {
	all, err := f.Copies()
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there is no backup in %s", f)
	}
	if name == "" {
		return all[len(all)-1], nil
	}
	var names []string
	for _, c := range all {
		if c.Name == name {
			return c, nil
		}
		names = append(names, c.Name)
	}
	return nil, fmt.Errorf("there is no backup %q in %s: there are %s", name, f, strings.Join(names, ", "))
}

// Restore brings a copy into a cluster. Nothing is changed unless the copy is whole.
// Tables and latent vectors come before the state: with it the cluster believes that it
// has them, and would take them no more.
func (f Folder) Restore(ctx context.Context, c Cluster, latents Store, copied *Copy) (*pb.MembersResponse, error) {
	if err := f.check(f.state(copied.Name), copied.State); err != nil {
		return nil, err
	}
	for _, t := range slices.Concat(copied.Tables, copied.Latents) {
		if err := f.check(f.table(t.SHA256), t); err != nil {
			return nil, err
		}
	}
	for _, t := range copied.Tables {
		if _, err := c.UploadFile(ctx, f.table(t.SHA256), nil); err != nil {
			return nil, fmt.Errorf("table %s: %w", t.SHA256, err)
		}
	}
	for _, l := range copied.Latents {
		if _, err := latents.UploadFile(ctx, f.table(l.SHA256), nil); err != nil {
			return nil, fmt.Errorf("latent vectors %s: %w", l.SHA256, err)
		}
	}
	state, err := os.Open(f.state(copied.Name))
	if err != nil {
		return nil, err
	}
	defer state.Close()
	return c.Restore(ctx, state)
}

// check reads a file of a copy and compares it with what it should be.
func (f Folder) check(path string, want Part) error {
	in, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("the backup is not whole: %w", err)
	}
	defer in.Close()
	h := sha256.New()
	n, err := io.Copy(h, in)
	if err != nil {
		return err
	}
	if n != want.Size || hex.EncodeToString(h.Sum(nil)) != want.SHA256 {
		return fmt.Errorf("the backup is damaged: %s is not what was written", path)
	}
	return nil
}

// Keep removes all copies but the newest n, and the tables that none of these needs.
func (f Folder) Keep(n int) error {
	all, err := f.Copies()
	if err != nil {
		return err
	}
	gone := all[:max(0, len(all)-n)]
	needed := map[string]bool{}
	for _, c := range all[len(gone):] {
		for _, t := range slices.Concat(c.Tables, c.Latents) {
			needed[t.SHA256] = true
		}
	}
	var errs []error
	for _, c := range gone { // the manifest first: without it there is no copy
		errs = append(errs, os.Remove(f.manifest(c.Name)), os.Remove(f.state(c.Name)))
	}
	tables, err := os.ReadDir(filepath.Join(string(f), dataFolder))
	for _, t := range tables {
		if len(t.Name()) == 2*sha256.Size && !needed[t.Name()] {
			errs = append(errs, os.Remove(f.table(t.Name())))
		}
	}
	return errors.Join(append(errs, err)...)
}
