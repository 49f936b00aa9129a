package blobnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ulisse-gp/ulisse/internal/blob"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// Send uploads what the other side lacks of a blob. progress, if not nil, hears
// how many bytes are there.
func Send(ctx context.Context, to pb.DataClient, addr string, size int64, r io.ReaderAt, progress func(int64)) (*pb.Blob, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a stream that was left
	have, err := to.Stat(ctx, &pb.StatRequest{Sha256: addr})
	switch {
	case status.Code(err) == codes.NotFound:
		have = &pb.Blob{}
	case err != nil:
		return nil, err
	case have.Complete:
		return have, nil
	}
	off := min(have.Present, size)
	stream, err := to.Upload(ctx)
	if err != nil {
		return nil, err
	}
	msg := &pb.UploadChunk{Sha256: addr, Size: size, Offset: off}
	buf := make([]byte, min(blob.ChunkSize, size-off))
	for first := true; first || off < size; first = false {
		msg.Data = buf[:min(int64(len(buf)), size-off)]
		if n, err := r.ReadAt(msg.Data, off); n < len(msg.Data) {
			return nil, fmt.Errorf("reading what is to be uploaded: %w", err)
		}
		if err := stream.Send(msg); err != nil {
			break // CloseAndRecv tells why
		}
		off += int64(len(msg.Data))
		if progress != nil {
			progress(off)
		}
		msg = &pb.UploadChunk{}
	}
	return stream.CloseAndRecv()
}

// Upload sends a blob to a cluster by any of its nodes, and goes on at the next
// when one fails, from where the upload stood. It returns when the blob is whole
// and replicated, when the cluster refuses it, or when all nodes have failed
// tries times in a row.
func Upload(ctx context.Context, nodes []Source, tries int, addr string, size int64, r io.ReaderAt, progress func(int64)) (*pb.Blob, error) {
	var last error
	for try := range tries * len(nodes) {
		if try > 0 && try%len(nodes) == 0 {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(time.Second):
			}
		}
		node := nodes[try%len(nodes)]
		b, err := Send(ctx, node, addr, size, r, progress)
		if err == nil && b.Complete {
			return b, nil
		}
		if err == nil {
			err = fmt.Errorf("it ended at %d of %d bytes", b.Present, size)
		}
		last = fmt.Errorf("%s: %w", node.Name, err)
		switch status.Code(err) {
		case codes.InvalidArgument, codes.ResourceExhausted, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented, codes.Canceled:
			return nil, last
		}
	}
	return nil, last
}

// Read returns a blob of the given size, verified.
func Read(ctx context.Context, from pb.DataClient, addr string, size int64) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := from.Download(ctx, &pb.DownloadRequest{Sha256: addr})
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, size)
	for {
		msg, err := stream.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if out = append(out, msg.Data...); int64(len(out)) > size {
			break
		}
	}
	if blob.Address(out) != addr {
		return nil, status.Errorf(codes.Unavailable, "the bytes that came of blob %s are not its own", addr)
	}
	return out, nil
}

// Fetch brings a blob into the store from the first source that has it, and
// goes on at the next when one fails. admit, if not nil, is asked once, when the
// size is known, whether there is room. What was fetched before an error stays,
// for another try.
func Fetch(ctx context.Context, store *blob.Store, addr string, sources []Source, admit func(size int64) error) error {
	var errs []error
	for i := 0; i < len(sources); i++ {
		src := sources[i]
		from, err := fetchFrom(ctx, store, addr, src, &admit)
		if err == nil || errors.Is(err, blob.ErrExists) {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, errNoRoom) || errors.Is(err, blob.ErrDiskFull) || errors.Is(err, blob.ErrBusy) {
			return err
		}
		if errors.Is(err, blob.ErrCorrupt) && from > 0 {
			i-- // the bytes before may be at fault, and are gone: once more from the start
			continue
		}
		errs = append(errs, fmt.Errorf("%s: %w", src.Name, err))
	}
	if len(errs) == 0 {
		return fmt.Errorf("%w, and nobody to fetch it from", blob.ErrNotFound)
	}
	return errors.Join(errs...)
}

var errNoRoom = errors.New("no room for the blob")

// fetchFrom fetches a blob from one source and returns at which byte it went on.
func fetchFrom(ctx context.Context, store *blob.Store, addr string, src Source, admit *func(int64) error) (from int64, err error) {
	have, err := src.Stat(marked(ctx), &pb.StatRequest{Sha256: addr})
	if err != nil {
		return 0, err
	}
	if !have.Complete {
		return 0, blob.ErrNotFound
	}
	if *admit != nil {
		if err := (*admit)(have.Size); err != nil {
			return 0, fmt.Errorf("%w: %w", errNoRoom, err)
		}
		*admit = nil
	}
	if in, err := store.Stat(addr); err == nil {
		from = min(in.Present, have.Size)
	}
	w, err := store.Append(addr, have.Size, from)
	if err != nil {
		return from, err
	}
	err = download(ctx, w, addr, src, have.Size)
	if err == nil {
		err = w.Commit()
	}
	return from, errors.Join(err, w.Close())
}

// download writes the bytes from where the writer is up to end.
func download(ctx context.Context, w *blob.Writer, addr string, src Source, end int64) error {
	if w.Offset() == end {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := src.Download(marked(ctx), &pb.DownloadRequest{Sha256: addr, Offset: w.Offset()})
	if err != nil {
		return err
	}
	for w.Offset() < end {
		msg, err := stream.Recv()
		if err == io.EOF {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		if _, err := w.Write(msg.Data); err != nil {
			return err
		}
	}
	return nil
}
