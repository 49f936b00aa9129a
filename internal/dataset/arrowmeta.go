package dataset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	flatbuffers "github.com/google/flatbuffers/go"
)

// What describes a table in Arrow's formats are flatbuffers, whose reader believes every length in them and makes room for it.
// So messages are walked through before it sees them (format/Message.fbs and Schema.fbs of Arrow have the fields).

// Bounds of what describes a table.
const (
	maxArrowMeta   = 16 << 20 // bytes of a message, and of all its texts
	maxArrowFields = 100_000  // with those within others
	maxArrowDepth  = 64
)

// The slots of the tables of a message, and the words for its header and for types that hold more than numbers.
const (
	slotHeaderType, slotHeader, slotBody, slotMetadata                    = 6, 8, 10, 12
	slotFields, slotSchemaMetadata                                        = 6, 8
	slotName, slotTypeType, slotType, slotChildren, slotFieldMetadata     = 4, 8, 10, 14, 16
	slotNodes, slotBuffers, slotVariadic                                  = 6, 8, 12
	slotDictionaryData, slotKey, slotValue, slotTimezone, slotTypeIDs     = 6, 4, 6, 6, 6
	headerSchema, headerDictionary, headerBatch, typeTimestamp, typeUnion = 1, 2, 3, 10, 14
)

var errArrowMeta = errors.New("what describes it is too large, or makes no sense")

// checkArrow returns an error if the messages of a stream of a size describe more than it holds.
func checkArrow(r io.ReaderAt, size int64) (err error) {
	defer func() { // places beyond the message
		if recover() != nil {
			err = errArrowMeta
		}
	}()
	for at := int64(0); at < size; {
		var prefix [8]byte
		if _, err := r.ReadAt(prefix[:], at); err != nil {
			return nil // the end, which the reader knows what to make of
		}
		if [4]byte(prefix[:4]) != [4]byte(magicArrowStream) {
			return errors.New("a message does not begin as one: streams from before Arrow 0.15 are not read")
		}
		n := int64(int32(binary.LittleEndian.Uint32(prefix[4:])))
		if n == 0 {
			return nil
		}
		if at += int64(len(prefix)); n < 8 || n > maxArrowMeta || n > size-at {
			return errArrowMeta
		}
		text := make([]byte, n)
		if _, err := r.ReadAt(text, at); err != nil && err != io.EOF {
			return err
		}
		m := arrowMeta{text: text}
		body := m.message()
		if at += n; body < 0 || body > size-at {
			return fmt.Errorf("a message of %d bytes with %d bytes left: the file has been cut", body, size-at)
		}
		at += body
	}
	return nil
}

// arrowMeta walks through a message. It panics where a length leads out of it.
type arrowMeta struct {
	text           []byte
	fields, strewn int
}

// message returns the length of the message's body.
func (m *arrowMeta) message() (body int64) {
	t := &flatbuffers.Table{Bytes: m.text, Pos: flatbuffers.GetUOffsetT(m.text)}
	m.pairs(t, slotMetadata)
	var header flatbuffers.Table
	if at := t.Offset(slotHeader); at != 0 {
		t.Union(&header, flatbuffers.UOffsetT(at))
		switch t.GetByteSlot(slotHeaderType, 0) {
		case headerSchema:
			m.pairs(&header, slotSchemaMetadata)
			m.tables(&header, slotFields, func(f *flatbuffers.Table) { m.field(f, 0) })
		case headerDictionary:
			m.tableAt(&header, slotDictionaryData, m.batch)
		case headerBatch:
			m.batch(&header)
		}
	}
	return t.GetInt64Slot(slotBody, 0)
}

func (m *arrowMeta) batch(t *flatbuffers.Table) {
	m.vector(t, slotNodes, 16)
	m.vector(t, slotBuffers, 16)
	m.vector(t, slotVariadic, 8)
}

func (m *arrowMeta) field(t *flatbuffers.Table, depth int) {
	if m.fields++; m.fields > maxArrowFields || depth > maxArrowDepth {
		panic(errArrowMeta)
	}
	m.count(t, slotName)
	m.pairs(t, slotFieldMetadata)
	m.tableAt(t, slotType, func(of *flatbuffers.Table) {
		switch t.GetByteSlot(slotTypeType, 0) {
		case typeTimestamp:
			m.count(of, slotTimezone)
		case typeUnion:
			m.vector(of, slotTypeIDs, 4)
		}
	})
	m.tables(t, slotChildren, func(f *flatbuffers.Table) { m.field(f, depth+1) })
}

// pairs walks through keys with values.
func (m *arrowMeta) pairs(t *flatbuffers.Table, slot flatbuffers.VOffsetT) {
	m.tables(t, slot, func(pair *flatbuffers.Table) {
		m.count(pair, slotKey)
		m.count(pair, slotValue)
	})
}

// count counts the bytes of a text: many places may be of one.
func (m *arrowMeta) count(t *flatbuffers.Table, slot flatbuffers.VOffsetT) {
	at := t.Offset(slot)
	if at == 0 {
		return
	}
	start := int(t.Indirect(flatbuffers.UOffsetT(at) + t.Pos))
	n := int(flatbuffers.GetUOffsetT(m.text[start:]))
	if m.strewn += n + 1; n > len(m.text)-start || m.strewn > maxArrowMeta {
		panic(errArrowMeta)
	}
}

// vector returns where a vector of elements of a size begins, and how many it has.
func (m *arrowMeta) vector(t *flatbuffers.Table, slot flatbuffers.VOffsetT, size int) (start flatbuffers.UOffsetT, n int) {
	at := flatbuffers.UOffsetT(t.Offset(slot))
	if at == 0 {
		return 0, 0
	}
	start, n = t.Vector(at), t.VectorLen(at)
	if n > (len(m.text)-int(start))/size {
		panic(errArrowMeta)
	}
	return start, n
}

// tables has a function walk through the tables of a vector.
func (m *arrowMeta) tables(t *flatbuffers.Table, slot flatbuffers.VOffsetT, walk func(*flatbuffers.Table)) {
	start, n := m.vector(t, slot, flatbuffers.SizeUOffsetT)
	for i := range n {
		walk(&flatbuffers.Table{Bytes: m.text, Pos: t.Indirect(start + flatbuffers.UOffsetT(i)*flatbuffers.SizeUOffsetT)})
	}
}

// tableAt has a function walk through a table, if there is one.
func (m *arrowMeta) tableAt(t *flatbuffers.Table, slot flatbuffers.VOffsetT, walk func(*flatbuffers.Table)) {
	if at := flatbuffers.UOffsetT(t.Offset(slot)); at != 0 {
		walk(&flatbuffers.Table{Bytes: m.text, Pos: t.Indirect(at + t.Pos)})
	}
}
