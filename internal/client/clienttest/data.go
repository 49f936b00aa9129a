package clienttest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// blob is a data set, maybe in part.
type blob struct {
	sha   string
	size  int64
	bytes []byte
}

func (b *blob) complete() bool {
	sum := sha256.Sum256(b.bytes)
	return hex.EncodeToString(sum[:]) == b.sha
}

func (b *blob) view() *pb.Blob {
	v := &pb.Blob{Sha256: b.sha, Size: b.size, Present: int64(len(b.bytes)), Complete: b.complete()}
	if v.Complete {
		v.Holders, v.Stored = []string{"c1"}, timestamppb.Now()
	}
	return v
}

func writes(b []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	}
}

type dataServer struct {
	pb.UnimplementedDataServer
	*Server
}

func (s dataServer) Stat(_ context.Context, r *pb.StatRequest) (*pb.Blob, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.blobs[r.Sha256]; b != nil {
		return b.view(), nil
	}
	return nil, status.Errorf(codes.NotFound, "there is no blob %s", r.Sha256)
}

func (s dataServer) List(context.Context, *pb.ListBlobsRequest) (*pb.ListBlobsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &pb.ListBlobsResponse{}
	for _, sha := range slices.Sorted(maps.Keys(s.blobs)) {
		v := s.blobs[sha].view()
		for _, j := range s.jobs {
			if j.view.Data.GetBlob() == sha {
				v.Jobs = append(v.Jobs, j.view.Id)
			}
		}
		r.Blobs = append(r.Blobs, v)
	}
	return r, nil
}

func (s dataServer) Upload(in pb.Data_UploadServer) error {
	var b *blob
	got := 0
	for {
		c, err := in.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		if b == nil {
			if b = s.blobs[c.Sha256]; b == nil {
				b = &blob{sha: c.Sha256, size: c.Size}
				s.blobs[c.Sha256] = b
			}
			if c.Offset != int64(len(b.bytes)) {
				s.mu.Unlock()
				return status.Errorf(codes.OutOfRange, "the blob is at %d", len(b.bytes))
			}
		}
		b.bytes = append(b.bytes, c.Data...)
		got += len(c.Data)
		cut := s.CutUpload > 0 && got >= s.CutUpload
		s.mu.Unlock()
		if len(c.Data) > 1<<20 {
			return status.Error(codes.InvalidArgument, "a chunk is too large")
		}
		if cut {
			return status.Error(codes.Unavailable, "cut")
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return in.SendAndClose(b.view())
}

func (s dataServer) Download(r *pb.DownloadRequest, out pb.Data_DownloadServer) error {
	s.mu.Lock()
	b := s.blobs[r.Sha256]
	s.mu.Unlock()
	if b == nil {
		return status.Errorf(codes.NotFound, "there is no blob %s", r.Sha256)
	}
	for i, piece := range slices.Collect(slices.Chunk(b.bytes[r.Offset:], 1500)) {
		if s.CutUpload > 0 && i == 2 && r.Offset < 3000 {
			return status.Error(codes.Unavailable, "cut")
		}
		if err := out.Send(&pb.DownloadChunk{Data: piece}); err != nil {
			return err
		}
	}
	return nil
}
