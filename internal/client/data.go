package client

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// chunkBytes is the size of the pieces of an upload: what the wire allows.
const chunkBytes = 1 << 20

// stub makes a client of a service that keeps blobs.
type stub func(grpc.ClientConnInterface) pb.DataClient

// Latents are the latent vectors of chains that a cluster keeps, for who copies it whole.
type Latents struct{ c *Client }

// Latents returns those of the cluster.
func (c *Client) Latents() Latents { return Latents{c} }

func newLatents(cc grpc.ClientConnInterface) pb.DataClient { return pb.NewLatentsClient(cc) }

// Blobs is Client.Blobs for latent vectors.
func (l Latents) Blobs(ctx context.Context) ([]*pb.Blob, error) { return l.c.blobs(ctx, newLatents) }

// Download is Client.Download for latent vectors.
func (l Latents) Download(ctx context.Context, sha string, w io.Writer) (int64, error) {
	return l.c.download(ctx, newLatents, sha, w)
}

// UploadFile is Client.UploadFile for latent vectors.
func (l Latents) UploadFile(ctx context.Context, path string, progress func(present, size int64)) (*pb.Blob, error) {
	return l.c.uploadFile(ctx, newLatents, path, progress)
}

// Stat returns what the cluster has of a blob; nothing is not an error.
func (c *Client) Stat(ctx context.Context, sha string) (*pb.Blob, error) {
	b, err := unary(ctx, c, pb.NewDataClient, pb.DataClient.Stat, &pb.StatRequest{Sha256: sha})
	if NotFound(err) {
		return &pb.Blob{Sha256: sha}, nil
	}
	return b, err
}

// Blobs returns the data sets that the cluster keeps.
func (c *Client) Blobs(ctx context.Context) ([]*pb.Blob, error) {
	return c.blobs(ctx, pb.NewDataClient)
}

func (c *Client) blobs(ctx context.Context, of stub) ([]*pb.Blob, error) {
	r, err := unary(ctx, c, of, pb.DataClient.List, &pb.ListBlobsRequest{})
	if err != nil {
		return nil, err
	}
	return r.Blobs, nil
}

// UploadFile sees to it that the cluster has a file and returns its blob. It
// sends only what is missing, and goes on from there when it is cut off.
// progress, if not nil, is called with the bytes that are there and those of the
// whole.
func (c *Client) UploadFile(ctx context.Context, path string, progress func(present, size int64)) (*pb.Blob, error) {
	return c.uploadFile(ctx, pb.NewDataClient, path, progress)
}

func (c *Client) uploadFile(ctx context.Context, to stub, path string, progress func(present, size int64)) (*pb.Blob, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the data: %w", err)
	}
	defer f.Close()
	sha, size, err := hash(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("cannot read the data: %w", err)
	}
	if size == 0 {
		return nil, fmt.Errorf("the file %s is empty", path)
	}
	if progress == nil {
		progress = func(int64, int64) {}
	}
	return c.upload(ctx, to, f, sha, size, progress)
}

// hash returns the SHA-256 of a file, in hex, and its size.
func hash(ctx context.Context, f io.Reader) (string, int64, error) {
	h, size := sha256.New(), int64(0)
	for r := bufio.NewReaderSize(f, chunkBytes); ctx.Err() == nil; {
		n, err := io.CopyN(h, r, chunkBytes)
		size += n
		if err == io.EOF {
			return hex.EncodeToString(h.Sum(nil)), size, nil
		}
		if err != nil {
			return "", 0, err
		}
	}
	return "", 0, ctx.Err()
}

// upload brings the bytes of r to the cluster, asking before each attempt how
// many are there.
func (c *Client) upload(ctx context.Context, to stub, r io.ReaderAt, sha string, size int64, progress func(present, size int64)) (*pb.Blob, error) {
	var blob *pb.Blob
	furthest := int64(-1)
	again := func(err error) bool {
		switch status.Code(err) {
		case codes.Aborted, codes.OutOfRange: // somebody else sends the same: look how far it is
			return true
		}
		return unavailable(err)
	}
	err := c.attempts(ctx, c.cfg.Patience, again, func(ctx context.Context, cc *grpc.ClientConn, heard func()) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		data := to(cc)
		b, err := data.Stat(ctx, &pb.StatRequest{Sha256: sha})
		if status.Code(err) == codes.NotFound {
			b, err = &pb.Blob{}, nil
		}
		if err != nil {
			return err
		}
		if b.Present < 0 || b.Present > size {
			return status.Errorf(codes.DataLoss, "the cluster has %d bytes of a blob of %d", b.Present, size)
		}
		if b.Present > furthest { // it gets on: patience starts anew
			furthest = b.Present
			heard()
		}
		if progress(b.Present, size); b.Complete {
			blob = b
			return nil
		}
		if blob, err = send(ctx, data, r, sha, b.Present, size, progress); err != nil {
			return err
		}
		if !blob.Complete {
			return status.Errorf(codes.Unavailable, "the upload ended at %d of %d bytes", blob.Present, size)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	progress(size, size)
	return blob, nil
}

// send streams the bytes from an offset on.
func send(ctx context.Context, data pb.DataClient, r io.ReaderAt, sha string, offset, size int64, progress func(present, size int64)) (*pb.Blob, error) {
	s, err := data.Upload(ctx)
	if err != nil {
		return nil, err
	}
	chunk := &pb.UploadChunk{Sha256: sha, Size: size, Offset: offset}
	for first := true; first || offset < size; first = false {
		buf := make([]byte, min(chunkBytes, size-offset)) // gRPC may hold on to it
		n, err := r.ReadAt(buf, offset)
		if err != nil && (err != io.EOF || n < len(buf)) {
			return nil, fmt.Errorf("cannot read the data: %w", err)
		}
		chunk.Data = buf
		if err := s.Send(chunk); err != nil {
			break // the reason comes with the answer
		}
		offset += int64(n)
		progress(offset, size)
		chunk = &pb.UploadChunk{}
	}
	return s.CloseAndRecv()
}

// Download writes a blob and returns an error if its bytes are not those of its
// address. It goes on where it was when it is cut off.
func (c *Client) Download(ctx context.Context, sha string, w io.Writer) (int64, error) {
	return c.download(ctx, pb.NewDataClient, sha, w)
}

func (c *Client) download(ctx context.Context, from stub, sha string, w io.Writer) (int64, error) {
	h, size := sha256.New(), int64(0)
	request := func() *pb.DownloadRequest { return &pb.DownloadRequest{Sha256: sha, Offset: size} }
	err := stream(ctx, c, c.cfg.Patience, true, from, pb.DataClient.Download, request, func(m *pb.DownloadChunk) error {
		h.Write(m.Data)
		size += int64(len(m.Data))
		_, err := w.Write(m.Data)
		return err
	})
	if err != nil {
		return size, err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != sha {
		return size, fmt.Errorf("what came for %s has the hash %s: it is damaged", sha, got)
	}
	return size, nil
}
