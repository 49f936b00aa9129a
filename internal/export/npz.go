package export

import (
	"archive/zip"
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

// writeNPZ writes NumPy arrays: those of the posterior by their names, those of
// the other groups as group/name. Two more hold JSON: metadata the attributes of all
// groups, and dims the names of the dimensions of every array, by group and array.
func writeNPZ(w io.Writer, src *Source) error {
	zw := zip.NewWriter(w)
	put := func(name string, a *Array) error {
		f, err := zw.CreateHeader(&zip.FileHeader{Name: name + ".npy", Method: zip.Store})
		if err != nil {
			return err
		}
		bw := bufio.NewWriterSize(f, 1<<16)
		if err := WriteNPY(bw, a); err != nil {
			return err
		}
		return bw.Flush()
	}
	attrs, dims := map[string]map[string]any{}, map[string]map[string][]string{}
	for _, g := range Tree(src) {
		dims[g.Name] = map[string][]string{}
		prefix := ""
		if g.Name != "posterior" {
			prefix = g.Name + "/"
		}
		for _, a := range g.arrays() {
			if err := put(prefix+a.Name, &a); err != nil {
				return err
			}
			dims[g.Name][a.Name] = append([]string{}, a.Dims...)
		}
		attrs[g.Name] = attrMap(g.Attrs)
	}
	for _, about := range []struct {
		name  string
		value any
	}{{"metadata", attrs}, {"dims", dims}} {
		text, err := json.Marshal(about.value)
		if err != nil {
			return err
		}
		if err := put(about.name, &Array{Shape: []int{}, Data: []string{string(text)}}); err != nil {
			return err
		}
	}
	return zw.Close()
}

func attrMap(attrs []Attr) map[string]any {
	m := map[string]any{}
	for _, a := range attrs {
		m[a.Name] = a.Value
	}
	return m
}

// WriteNPY writes an array in NumPy's .npy format, version 1.0: magic, version,
// length of the header, header padded to a multiple of 64 bytes, elements.
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
func WriteNPY(w io.Writer, a *Array) error {
	shape := make([]string, len(a.Shape))
	for i, n := range a.Shape {
		shape[i] = fmt.Sprintf("%d,", n)
	}
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", dtype(a.Data), strings.Join(shape, " "))
	const fixed = 10
	header += strings.Repeat(" ", 63-(fixed+len(header))%64) + "\n"
	if len(header) > math.MaxUint16 {
		return fmt.Errorf("the header of %s is too long", a.Name)
	}
	b := append([]byte("\x93NUMPY\x01\x00"), 0, 0)
	binary.LittleEndian.PutUint16(b[8:], uint16(len(header)))
	if _, err := w.Write(append(b, header...)); err != nil {
		return err
	}
	return writeElements(w, a.Data)
}

// dtype returns NumPy's name of the elements' type.
func dtype(data any) string {
	switch x := data.(type) {
	case []float64:
		return "<f8"
	case []int64:
		return "<i8"
	case []string:
		return fmt.Sprintf("<U%d", longest(x))
	}
	panic(fmt.Sprintf("export: no type for %T", data))
}

// longest returns the length of the longest text in code points, 1 at least.
func longest(x []string) int {
	n := 1
	for _, s := range x {
		n = max(n, utf8.RuneCountInString(s))
	}
	return n
}

// writeElements writes elements in little-endian order, texts as UCS-4 padded
// with zeros.
func writeElements(w io.Writer, data any) error {
	x, ok := data.([]string)
	if !ok {
		return binary.Write(w, binary.LittleEndian, data)
	}
	width := longest(x)
	for _, s := range x {
		cell := make([]rune, width)
		copy(cell, []rune(s))
		if err := binary.Write(w, binary.LittleEndian, cell); err != nil {
			return err
		}
	}
	return nil
}
