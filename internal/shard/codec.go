package shard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"math"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// contentSubtype names the codec of tile sessions.
const contentSubtype = "tiles"

const (
	blockLen  = 64 << 10 // numbers in a frame: 512 KiB
	maxHead   = 64 << 10 // bytes of a frame beside its data
	dataField = 15
)

// buffers are reused; gRPC's own pool clears a whole megabyte for each of more than 32 KiB.
var buffers mem.BufferPool

func init() {
	encoding.RegisterCodecV2(codec{})
	var err error
	if buffers, err = mem.NewBinaryTieredBufferPool(12, 13, 14, 15, 16, 17, 18, 19); err != nil {
		panic(err) // an exponent that is too large
	}
}

// frame is a TilesRequest or TilesResponse whose data are kept apart. On the wire
// it is that message, with the data last.
type frame struct {
	head proto.Message // without data
	data mem.Buffer    // to send; nil if none
	fill func()        // sets what is sent just before it is; nil if it is set
	body *mem.Reader   // received
}

// size returns the number of bytes that a frame takes on the wire, but for a few.
func (f *frame) size() int64 {
	n := proto.Size(f.head)
	if f.data != nil {
		n += f.data.Len()
	}
	return int64(n)
}

// close frees what a received frame holds.
func (f *frame) close() {
	if f.body != nil {
		f.body.Close()
		f.body = nil
	}
}

// codec puts frames on the wire without copying their data.
type codec struct{}

func (codec) Name() string { return contentSubtype }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("shard: cannot send a %T in a tile session", v)
	}
	head, err := proto.Marshal(f.head)
	if err != nil {
		return nil, err
	}
	if f.data == nil {
		return mem.BufferSlice{mem.SliceBuffer(head)}, nil
	}
	head = protowire.AppendTag(head, dataField, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(f.data.Len()))
	f.data.Ref()
	return mem.BufferSlice{mem.SliceBuffer(head), f.data}, nil
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("shard: cannot receive a %T in a tile session", v)
	}
	f.close()
	f.body = data.Reader()
	if err := f.parse(); err != nil {
		f.close()
		return fmt.Errorf("shard: malformed frame of %d bytes: %w", data.Len(), err)
	}
	return nil
}

// parse reads the head, and leaves body at the data.
func (f *frame) parse() error {
	if f.body.Remaining() > maxHead+8*blockLen {
		return errors.New("it is too long")
	}
	var head []byte
	for f.body.Remaining() > 0 {
		tag, err := binary.ReadUvarint(f.body)
		if err != nil {
			return err
		}
		if tag&7 != uint64(protowire.BytesType) {
			return fmt.Errorf("field %d is neither a message nor bytes", tag>>3)
		}
		n, err := binary.ReadUvarint(f.body)
		if err != nil {
			return err
		}
		if tag>>3 == dataField {
			if n != uint64(f.body.Remaining()) || n > 8*blockLen || n%4 != 0 {
				return fmt.Errorf("%d bytes of data are not the last, too long or not whole numbers", n)
			}
			break
		}
		if n > uint64(f.body.Remaining()) || n > uint64(maxHead-len(head)) {
			return fmt.Errorf("field %d is too long", tag>>3)
		}
		head = protowire.AppendVarint(protowire.AppendVarint(head, tag), n)
		at := len(head)
		head = append(head, make([]byte, n)...)
		if _, err := f.body.Read(head[at:]); err != nil && n > 0 {
			return err
		}
	}
	return proto.Unmarshal(head, f.head)
}

// numbers returns how many numbers of some width the data of a received frame hold.
func (f *frame) numbers(width int) int { return f.body.Remaining() / width }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// read decodes the data, numbers of some width, into the slices that to returns one after
// another, and returns an error if they do not have the checksum.
func (f *frame) read(width int, want uint32, to iter.Seq[[]float64]) error {
	var buf [8192]byte
	var crc uint32
	for dst := range to {
		for len(dst) > 0 {
			b := buf[:min(len(buf), width*len(dst))]
			if n, _ := f.body.Read(b); n != len(b) {
				return errors.New("the data are too short")
			}
			crc = crc32.Update(crc, castagnoli, b)
			k := len(b) / width
			decode(dst[:k], b)
			dst = dst[k:]
		}
	}
	if f.body.Remaining() > 0 {
		return errors.New("the data are too long")
	}
	if crc != want {
		return fmt.Errorf("the data have checksum %08x, not %08x", crc, want)
	}
	return nil
}

// decode sets dst to the numbers in b, in as many bytes each as there are.
func decode(dst []float64, b []byte) {
	if len(b) == 8*len(dst) {
		for i := range dst {
			dst[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		}
		return
	}
	for i := range dst {
		dst[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
	}
}

// one returns a sequence of one slice.
func one(x []float64) iter.Seq[[]float64] { return func(yield func([]float64) bool) { yield(x) } }

// encode returns the bytes of numbers, in a buffer that goes back to a pool with
// its last reference, and their checksum.
func encode(x []float64) (mem.Buffer, uint32) {
	b := buffers.Get(8 * len(x))
	put64(*b, x)
	return mem.NewBuffer(b, buffers), crc32.Checksum(*b, castagnoli)
}

// checksum returns that of numbers as they are encoded.
func checksum(x []float64) (crc uint32) {
	var buf [8192]byte
	for len(x) > 0 {
		k := min(len(x), len(buf)/8)
		put64(buf[:8*k], x[:k])
		crc = crc32.Update(crc, castagnoli, buf[:8*k])
		x = x[k:]
	}
	return crc
}

func put64(b []byte, x []float64) {
	for i, v := range x {
		binary.LittleEndian.PutUint64(b[8*i:], math.Float64bits(v))
	}
}

// put32 writes numbers, times a factor, as float32.
func put32(b []byte, x []float64, factor float64) {
	for i, v := range x {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(float32(factor*v)))
	}
}

// region is a part of vectors: rows [lo,hi) of columns. Its numbers lie on the wire from
// start on, column after column.
type region struct {
	columns [][]float64
	lo, hi  int
	start   int
}

func (r region) len() int { return len(r.columns) * (r.hi - r.lo) }

// parts returns the slices that k numbers of the region lie in, from the at-th on.
func (r region) parts(at, k int) iter.Seq2[int, []float64] {
	return func(yield func(int, []float64) bool) {
		rows := r.hi - r.lo
		for at, k := at, k; k > 0; {
			c, i := at/rows, at%rows
			n := min(k, rows-i)
			if !yield(c, r.columns[c][r.lo+i:][:n]) {
				return
			}
			at, k = at+n, k-n
		}
	}
}

// slices returns the slices of parts.
func (r region) slices(at, k int) iter.Seq[[]float64] {
	return func(yield func([]float64) bool) {
		for _, x := range r.parts(at, k) {
			if !yield(x) {
				return
			}
		}
	}
}

// chunk is a piece of vectors, encoded.
type chunk struct {
	offset uint64
	crc    uint32
	data   mem.Buffer
}

// chunks are vectors, encoded once for all members that they are sent to.
type chunks []chunk

// encode cuts a region into chunks of numbers of some width: float64, or float32 and each
// column times its factor.
func (r region) encode(width int, factor []float64) (all chunks) {
	for at := 0; at < r.len(); at += blockLen {
		all = append(all, r.chunk(at, width, factor))
	}
	return all
}

// chunk encodes the numbers from the at-th on, as many as a frame takes.
func (r region) chunk(at, width int, factor []float64) chunk {
	b := buffers.Get(width * min(blockLen, r.len()-at))
	to := *b
	for c, x := range r.parts(at, len(to)/width) {
		if width == 4 {
			put32(to, x, factor[c])
		} else {
			put64(to, x)
		}
		to = to[width*len(x):]
	}
	return chunk{uint64(r.start + at), crc32.Checksum(*b, castagnoli), mem.NewBuffer(b, buffers)}
}

func (cs chunks) ref() {
	for _, c := range cs {
		c.data.Ref()
	}
}

func (cs chunks) free() {
	for _, c := range cs {
		c.data.Free()
	}
}
