//go:build clouds

package ref

import (
	"context"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	_ "gocloud.dev/blob/fileblob"
)

// The drivers' own tests are theirs; here a bucket in a directory stands for them.
func TestBucket(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "key"), []byte("x,y\n1,2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	clouds["s3"] = func(ctx context.Context, u *url.URL) (io.ReadCloser, int64, error) {
		return openBucketAt(ctx, "file://"+filepath.ToSlash(dir), u.Path)
	}
	defer func() { clouds["s3"] = openBucket }()
	ok := Options{AllowedHosts: []string{"s3://bucket"}}
	r, err := OpenURL(t.Context(), "s3://bucket/key", ok)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err != nil || string(got) != "x,y\n1,2\n" {
		t.Errorf("%q, %v", got, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := OpenURL(t.Context(), "s3://bucket/other", ok); err == nil {
		t.Error("an object that is not there was opened")
	}
	for _, ref := range []string{"s3://other/key", "gs://bucket/key", "s3://bucket/key?endpoint=http://evil"} {
		if _, err := OpenURL(t.Context(), ref, ok); !errors.Is(err, ErrNotAllowed) {
			t.Errorf("%s: %v", ref, err)
		}
	}
}
