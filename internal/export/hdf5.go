package export

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/bits"
)

// This file writes HDF5 as far as netCDF-4 needs it: a superblock of version 2,
// groups whose links are in their object headers (version 2), contiguous data
// sets, attributes, and one global heap for what has a variable length.
// https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t3.html
//
// All lengths are known before all addresses are, so metadata are encoded
// twice: once for their lengths, then with the addresses that follow from them.

// h5object is a group or a data set.
type h5object struct {
	name     string
	attrs    []h5attr
	children []*h5object // of a group
	set      *h5set      // nil for a group
	address  uint64      // of its header
}

// h5set is the content of a data set.
type h5set struct {
	kind    []byte // datatype
	space   []byte
	size    int                     // bytes; 0: never written
	write   func(w io.Writer) error // the elements
	address uint64
}

// h5attr is an attribute. Its data are asked for when addresses are known.
type h5attr struct {
	name        string
	kind, space []byte
	data        func() []byte
}

// undefined is the address of what is not there.
const undefined = math.MaxUint64

// le appends numbers in little-endian order.
func le(b []byte, x ...any) []byte {
	for _, v := range x {
		switch v := v.(type) {
		case string:
			b = append(b, v...)
		case []byte:
			b = append(b, v...)
		default:
			b, _ = binary.Append(b, binary.LittleEndian, v) // fixed sizes: cannot fail
		}
	}
	return b
}

// Datatypes: class and version, class bits, size, properties.

func h5type(class, version uint8, bits [3]uint8, size uint32, properties ...any) []byte {
	return le(le(nil, version<<4|class, bits, size), properties...)
}

var (
	h5float64 = h5type(1, 1, [3]uint8{0x20, 63}, 8, uint16(0), uint16(64), uint8(52), uint8(11), uint8(0), uint8(52), uint32(1023))
	h5float32 = h5type(1, 1, [3]uint8{0x20, 31}, 4, uint16(0), uint16(32), uint8(23), uint8(8), uint8(0), uint8(23), uint32(127))
	h5int64   = h5type(0, 1, [3]uint8{0x08}, 8, uint16(0), uint16(64))
	h5int32   = h5type(0, 1, [3]uint8{0x08}, 4, uint16(0), uint16(32))
	h5byte    = h5type(0, 1, [3]uint8{}, 1, uint16(0), uint16(8))
	h5ref     = h5type(7, 1, [3]uint8{}, 8)
	h5texts   = h5type(9, 1, [3]uint8{1, 1}, 16, h5byte) // of variable length, UTF-8
	h5refs    = h5type(9, 1, [3]uint8{}, 16, h5ref)      // sequences of references
	// h5backRef is what a dimension scale knows of a data set: where, which dimension.
	h5backRef = h5type(6, 3, [3]uint8{2}, 16, "dataset\x00", uint8(0), h5ref, "dimension\x00", uint8(8), h5int32)
)

// h5text is the type of a text of n bytes.
func h5text(n int) []byte { return h5type(3, 1, [3]uint8{0x10}, uint32(n)) }

// h5space is a data space; no dimensions are a scalar.
func h5space(shape ...int) []byte {
	kind := uint8(0)
	if len(shape) > 0 {
		kind = 1
	}
	b := le(nil, uint8(2), uint8(len(shape)), uint8(0), kind)
	for _, n := range shape {
		b = le(b, uint64(n))
	}
	return b
}

// h5value returns the attribute of a value.
func h5value(a Attr) h5attr {
	constant := func(kind []byte, data ...any) h5attr {
		return h5attr{a.Name, kind, h5space(), func() []byte { return le(nil, data...) }}
	}
	switch v := a.Value.(type) {
	case float64:
		return constant(h5float64, v)
	case int64:
		return constant(h5int64, v)
	case int32:
		return constant(h5int32, v)
	case string:
		v += "\x00" // a type has one byte at least
		return constant(h5text(len(v)), v)
	}
	panic(fmt.Sprintf("export: no type for an attribute %T", a.Value))
}

// h5header encodes an object header from its messages.
type h5header struct {
	b     []byte
	attrs uint16
}

// The flags of a header: a length of four bytes; the order of attributes is
// kept and indexed; how many may be in the header.
const h5headerFlags = 0x02 | 0x04 | 0x08 | 0x10

func (h *h5header) message(kind uint8, order uint16, data []byte) error {
	if len(data) > math.MaxUint16 {
		return fmt.Errorf("%d bytes of metadata, more than an HDF5 message holds", len(data))
	}
	h.b = le(h.b, kind, uint16(len(data)), uint8(0), order, data)
	return nil
}

func (h *h5header) attribute(a h5attr) error {
	name := a.name + "\x00"
	err := h.message(0x0c, h.attrs, le(nil, uint8(3), uint8(0), uint16(len(name)), uint16(len(a.kind)), uint16(len(a.space)), uint8(1), name, a.kind, a.space, a.data()))
	h.attrs++
	return err
}

func (h *h5header) bytes() []byte {
	most := uint16(math.MaxUint16) // attributes and links are never moved elsewhere
	return checked(le(nil, "OHDR", uint8(2), uint8(h5headerFlags), most, uint16(0), uint32(len(h.b)), h.b))
}

// encode returns an object's header.
func (o *h5object) encode() ([]byte, error) {
	h := &h5header{}
	none := uint64(undefined)
	var err error
	put := func(kind uint8, data []byte) {
		if err == nil {
			err = h.message(kind, 0, data)
		}
	}
	if s := o.set; s != nil {
		at := s.address
		if s.size == 0 {
			at = undefined
		}
		put(0x01, s.space)
		put(0x03, s.kind)
		put(0x05, le(nil, uint8(3), uint8(0x0a))) // no fill value
		put(0x08, le(nil, uint8(3), uint8(1), at, uint64(s.size)))
	} else {
		put(0x02, le(nil, uint8(0), uint8(0x03), uint64(len(o.children)), none, none, none)) // links, in order
		put(0x0a, le(nil, uint8(0), uint8(1), uint16(math.MaxUint16), uint16(0)))
		for i, c := range o.children {
			put(0x06, le(nil, uint8(1), uint8(0x15), uint64(i), uint8(1), uint16(len(c.name)), c.name, c.address))
		}
	}
	put(0x15, le(nil, uint8(0), uint8(0x03), uint16(len(o.attrs)), none, none, none))
	for _, a := range o.attrs {
		if err == nil {
			err = h.attribute(a)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.name, err)
	}
	return h.bytes(), nil
}

// h5heap is the global heap: what has a variable length.
type h5heap struct {
	items   []func() []byte
	address uint64
}

// add takes in an item of that many elements and returns the 16 bytes that stand
// for it, once addresses are known.
func (h *h5heap) add(elements int, item func() []byte) func() []byte {
	if elements == 0 {
		return func() []byte { return make([]byte, 16) }
	}
	h.items = append(h.items, item)
	index := uint32(len(h.items))
	return func() []byte { return le(nil, uint32(elements), h.address, index) }
}

// h5heapLeast is the least size of a heap.
const h5heapLeast = 4096

func (h *h5heap) encode() ([]byte, error) {
	if len(h.items) == 0 {
		return nil, nil
	}
	if len(h.items) > math.MaxUint16 {
		return nil, fmt.Errorf("%d names, more than an HDF5 heap holds", len(h.items))
	}
	var b []byte
	for i, item := range h.items {
		data := item()
		b = le(b, uint16(i+1), uint16(1), uint32(0), uint64(len(data)), data, make([]byte, -len(data)&7))
	}
	size := max(h5heapLeast, 16+len(b)+16)
	free := size - 16 - len(b)
	return le(nil, "GCOL", uint8(1), [3]uint8{}, uint64(size), b, uint16(0), uint16(0), uint32(0), uint64(free), make([]byte, free-16)), nil
}

const h5superblock = 48

// writeHDF5 writes a file with everything below root.
func writeHDF5(w io.Writer, root *h5object, heap *h5heap) error {
	var objects []*h5object
	var walk func(*h5object)
	walk = func(o *h5object) {
		objects = append(objects, o)
		for _, c := range o.children {
			walk(c)
		}
	}
	walk(root)
	var head bytes.Buffer
	end := uint64(0)
	for range 2 { // the second time with addresses
		head.Reset()
		at := func() uint64 {
			head.Write(make([]byte, -head.Len()&7))
			return h5superblock + uint64(head.Len())
		}
		for _, o := range objects {
			o.address = at()
			b, err := o.encode()
			if err != nil {
				return err
			}
			head.Write(b)
		}
		heap.address = at()
		b, err := heap.encode()
		if err != nil {
			return err
		}
		head.Write(b)
		end = at()
		for _, o := range objects {
			if o.set != nil {
				o.set.address = end
				end += uint64(o.set.size+7) &^ 7
			}
		}
	}
	super := checked(le(nil, "\x89HDF\r\n\x1a\n", uint8(2), uint8(8), uint8(8), uint8(0), uint64(0), uint64(undefined), end, root.address))
	if _, err := w.Write(append(super, head.Bytes()...)); err != nil {
		return err
	}
	for _, o := range objects {
		if o.set == nil || o.set.size == 0 {
			continue
		}
		if err := o.set.write(w); err != nil {
			return err
		}
		if _, err := w.Write(make([]byte, -o.set.size&7)); err != nil {
			return err
		}
	}
	return nil
}

// checked appends the checksum of metadata: Jenkins's lookup3, hashlittle.
func checked(b []byte) []byte {
	x := uint32(0xdeadbeef) + uint32(len(b))
	h := [3]uint32{x, x, x}
	k := b
	for ; len(k) > 12; k = k[12:] {
		for i := range h {
			h[i] += binary.LittleEndian.Uint32(k[4*i:])
		}
		for i, r := range []int{4, 6, 8, 16, 19, 4} {
			a, c, s := i%3, (i+2)%3, (i+1)%3
			h[a] = (h[a] - h[c]) ^ bits.RotateLeft32(h[c], r)
			h[c] += h[s]
		}
	}
	if len(k) == 0 {
		return le(b, h[2])
	}
	last := make([]byte, 12)
	copy(last, k)
	for i := range h {
		h[i] += binary.LittleEndian.Uint32(last[4*i:])
	}
	for i, r := range []int{14, 11, 25, 16, 4, 14, 24} {
		a, c := (i+2)%3, (i+1)%3
		h[a] = (h[a] ^ h[c]) - bits.RotateLeft32(h[c], r)
	}
	return le(b, h[2])
}
