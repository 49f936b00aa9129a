package export

import (
	"archive/zip"
	"bytes"
	"compress/zlib"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
)

// zipped reports whether a Zarr store at this path is a zip file.
func zipped(path string) bool { return strings.HasSuffix(strings.ToLower(path), ".zip") }

// writeZarr writes a Zarr store of version 2, as ArviZ's to_zarr does: a group
// for each of InferenceData's, dimensions as xarray notes them, metadata
// consolidated. https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html
func writeZarr(path string, src *Source) error {
	if !zipped(path) {
		return folder(path, func(dir string) error {
			return zarrStore(src, func(key string, value []byte) error {
				name := filepath.Join(dir, filepath.FromSlash(key))
				if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
					return err
				}
				return os.WriteFile(name, value, 0o644)
			})
		})
	}
	return atomicfile.Write(path, 0o644, func(w io.Writer) error {
		zw := zip.NewWriter(w)
		err := zarrStore(src, func(key string, value []byte) error {
			f, err := zw.CreateHeader(&zip.FileHeader{Name: key, Method: zip.Store}) // chunks are compressed already
			if err == nil {
				_, err = f.Write(value)
			}
			return err
		})
		if err != nil {
			return err
		}
		return zw.Close()
	})
}

// zarrArray is the content of .zarray.
type zarrArray struct {
	Format     int            `json:"zarr_format"`
	Shape      []int          `json:"shape"`
	Chunks     []int          `json:"chunks"`
	Dtype      string         `json:"dtype"`
	Compressor map[string]any `json:"compressor"`
	Fill       any            `json:"fill_value"` // null: xarray would take a value for "missing"
	Order      string         `json:"order"`
	Filters    any            `json:"filters"`
}

// zlibLevel is fast: digits of draws hardly compress.
const zlibLevel = 1

// chunkElements bounds a chunk, but for that of a single index of the first
// dimension.
const chunkElements = 1 << 17

// zarrStore puts all keys of a store.
func zarrStore(src *Source, put func(key string, value []byte) error) error {
	metadata := map[string]any{}
	note := func(key string, value any) error {
		metadata[key] = value
		text, err := asciiJSON(value)
		if err != nil {
			return err
		}
		return put(key, text)
	}
	zgroup := map[string]any{"zarr_format": 2}
	if err := note(".zgroup", zgroup); err != nil {
		return err
	}
	if err := note(".zattrs", attrMap(common(src))); err != nil {
		return err
	}
	for _, g := range Tree(src) {
		if err := note(g.Name+"/.zgroup", zgroup); err != nil {
			return err
		}
		attrs := attrMap(g.Attrs)
		if err := note(g.Name+"/.zattrs", attrs); err != nil {
			return err
		}
		for _, a := range g.arrays() {
			key := g.Name + "/" + a.Name
			attrs := attrMap(a.Attrs)
			attrs["_ARRAY_DIMENSIONS"] = append([]string{}, a.Dims...)
			rows := chunkRows(a.Shape)
			chunks := make([]int, len(a.Shape))
			for i, n := range a.Shape {
				chunks[i] = max(1, n)
			}
			if len(chunks) > 0 {
				chunks[0] = rows
			}
			if err := note(key+"/.zarray", zarrArray{Format: 2, Shape: a.Shape, Chunks: chunks, Dtype: dtype(a.Data), Order: "C",
				Compressor: map[string]any{"id": "zlib", "level": zlibLevel}}); err != nil {
				return err
			}
			if err := note(key+"/.zattrs", attrs); err != nil {
				return err
			}
			if err := zarrChunks(key+"/", &a, rows, put); err != nil {
				return err
			}
		}
	}
	text, err := asciiJSON(map[string]any{"zarr_consolidated_format": 1, "metadata": metadata})
	if err != nil {
		return err
	}
	return put(".zmetadata", text)
}

// asciiJSON returns JSON that is ASCII, as Zarr's readers want it.
func asciiJSON(value any) ([]byte, error) {
	text, err := json.MarshalIndent(value, "", "    ")
	if err != nil {
		return nil, err
	}
	var out []byte
	for _, r := range string(text) {
		if r < utf8.RuneSelf {
			out = append(out, byte(r))
			continue
		}
		for _, u := range utf16.AppendRune(nil, r) {
			out = fmt.Appendf(out, "\\u%04x", u)
		}
	}
	return out, nil
}

// chunkRows returns the indices of the first dimension that a chunk holds, so
// that chunks are consecutive elements.
func chunkRows(shape []int) int {
	if len(shape) == 0 {
		return 1
	}
	row := 1
	for _, n := range shape[1:] {
		row *= max(1, n)
	}
	return min(max(1, chunkElements/row), max(1, shape[0]))
}

// zarrChunks puts the chunks of an array. The last is padded to the full size.
func zarrChunks(prefix string, a *Array, rows int, put func(string, []byte) error) error {
	var raw bytes.Buffer
	if err := writeElements(&raw, a.Data); err != nil {
		return err
	}
	total := 1
	for _, n := range a.Shape {
		total *= n
	}
	if total == 0 {
		return nil
	}
	first, rest := 1, ""
	if len(a.Shape) > 0 {
		first, rest = a.Shape[0], strings.Repeat(".0", len(a.Shape)-1)
	}
	size := raw.Len() / first * rows
	for k := 0; raw.Len() > 0; k++ {
		chunk := make([]byte, size)
		copy(chunk, raw.Next(size))
		var out bytes.Buffer
		zw, err := zlib.NewWriterLevel(&out, zlibLevel)
		if err != nil {
			return err
		}
		if _, err := zw.Write(chunk); err != nil {
			return err
		}
		if err := zw.Close(); err != nil {
			return err
		}
		if err := put(prefix+strconv.Itoa(k)+rest, out.Bytes()); err != nil {
			return err
		}
	}
	return nil
}
