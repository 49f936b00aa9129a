//go:build clouds

package ref

import (
	"context"
	"io"
	"net/url"
	"strings"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/azureblob"
	_ "gocloud.dev/blob/gcsblob"
	_ "gocloud.dev/blob/s3blob"
)

// The drivers take their settings and credentials from the environment, as
// the tools of each cloud do.
func init() {
	for _, scheme := range []string{"s3", "gs", "azblob"} {
		clouds[scheme] = openBucket
	}
}

// object closes its bucket with itself.
type object struct {
	*blob.Reader
	bucket *blob.Bucket
}

func (o object) Close() error {
	err := o.Reader.Close()
	if e := o.bucket.Close(); err == nil {
		err = e
	}
	return err
}

func openBucket(ctx context.Context, u *url.URL) (io.ReadCloser, int64, error) {
	return openBucketAt(ctx, u.Scheme+"://"+u.Host, u.Path)
}

func openBucketAt(ctx context.Context, bucket, key string) (io.ReadCloser, int64, error) {
	b, err := blob.OpenBucket(ctx, bucket)
	if err != nil {
		return nil, 0, err
	}
	r, err := b.NewReader(ctx, strings.TrimPrefix(key, "/"), nil)
	if err != nil {
		b.Close()
		return nil, 0, err
	}
	return object{r, b}, r.Size(), nil
}
