package shard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
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

func init() { encoding.RegisterCodecV2(codec{}) }

// frame is a TilesRequest or TilesResponse whose data are kept apart. On the wire
// it is that message, with the data last.
type frame struct {
	head proto.Message // without data
	data mem.Buffer    // to send; nil if none
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
			if n != uint64(f.body.Remaining()) || n > 8*blockLen || n%8 != 0 {
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

// numbers returns how many numbers the data of a received frame hold.
func (f *frame) numbers() int { return f.body.Remaining() / 8 }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// read decodes the data into dst, of numbers() elements, and returns an error if
// they do not have the checksum.
func (f *frame) read(dst []float64, want uint32) error {
	var buf [4096]byte
	var crc uint32
	for len(dst) > 0 {
		b := buf[:min(len(buf), 8*len(dst))]
		if n, _ := f.body.Read(b); n != len(b) {
			return errors.New("the data are too short")
		}
		crc = crc32.Update(crc, castagnoli, b)
		for i := range len(b) / 8 {
			dst[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		}
		dst = dst[len(b)/8:]
	}
	if crc != want {
		return fmt.Errorf("the data have checksum %08x, not %08x", crc, want)
	}
	return nil
}

// encode returns the bytes of numbers, in a buffer that goes back to a pool with
// its last reference, and their checksum.
func encode(x []float64) (mem.Buffer, uint32) {
	pool := mem.DefaultBufferPool()
	b := pool.Get(8 * len(x))
	for i, v := range x {
		binary.LittleEndian.PutUint64((*b)[8*i:], math.Float64bits(v))
	}
	return mem.NewBuffer(b, pool), crc32.Checksum(*b, castagnoli)
}

// chunk is a piece of vectors, encoded.
type chunk struct {
	offset uint64
	crc    uint32
	data   mem.Buffer
}

// chunks are vectors, encoded once for all members that they are sent to.
type chunks []chunk

// encodeColumns cuts columns into chunks; none spans two columns.
func encodeColumns(cols [][]float64) chunks {
	var all chunks
	var at uint64
	for _, x := range cols {
		for len(x) > 0 {
			n := min(len(x), blockLen)
			c := chunk{offset: at}
			c.data, c.crc = encode(x[:n])
			all = append(all, c)
			at += uint64(n)
			x = x[n:]
		}
	}
	return all
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
