package export

import (
	"fmt"
	"io"
	"slices"
)

// writeNetCDF writes a netCDF-4 file, which is HDF5 with dimension scales, as
// ArviZ's to_netcdf does: a group for each of InferenceData's.
// https://docs.unidata.ucar.edu/netcdf-c/current/file_format_specifications.html
func writeNetCDF(w io.Writer, src *Source) error {
	f := &netcdf{heap: &h5heap{}, root: &h5object{}}
	for _, a := range common(src) {
		f.root.attrs = append(f.root.attrs, h5value(a))
	}
	for _, g := range Tree(src) {
		f.group(&g)
	}
	return writeHDF5(w, f.root, f.heap)
}

// netcdf is a file that is being laid out.
type netcdf struct {
	root *h5object
	heap *h5heap
	dims int32 // so far, in all groups
}

// scale is the data set that a dimension is known by: its coordinate, if it has
// one.
type scale struct {
	set  *h5object
	uses []use
}

// use is a dimension of a data set.
type use struct {
	by  *h5object
	dim int32
}

// group lays out a group.
func (f *netcdf) group(g *Group) {
	o := &h5object{name: g.Name}
	for _, a := range g.Attrs {
		o.attrs = append(o.attrs, h5value(a))
	}
	scales := map[string]*scale{}
	for _, a := range g.arrays() {
		for i, dim := range a.Dims {
			if scales[dim] == nil {
				scales[dim] = f.scale(g, dim, a.Shape[i])
				o.children = append(o.children, scales[dim].set)
			}
		}
	}
	for _, a := range g.Vars {
		v := f.set(&a)
		for i, dim := range a.Dims {
			scales[dim].uses = append(scales[dim].uses, use{v, int32(i)})
		}
		if len(a.Dims) > 0 {
			var lists []func() []byte
			for _, dim := range a.Dims {
				lists = append(lists, f.heap.add(1, func() []byte { return le(nil, scales[dim].set.address) }))
			}
			v.attrs = append(v.attrs, h5attr{"DIMENSION_LIST", h5refs, h5space(len(a.Dims)), joined(lists)})
		}
		o.children = append(o.children, v)
	}
	for _, s := range scales {
		if len(s.uses) > 0 {
			s.set.attrs = append(s.set.attrs, h5attr{"REFERENCE_LIST", h5backRef, h5space(len(s.uses)), func() []byte {
				var b []byte
				for _, u := range s.uses {
					b = le(b, u.by.address, u.dim, uint32(0))
				}
				return b
			}})
		}
	}
	f.root.children = append(f.root.children, o)
}

// scale lays out a dimension.
func (f *netcdf) scale(g *Group, dim string, n int) *scale {
	var o *h5object
	name := dim
	if i := slices.IndexFunc(g.Coords, func(a Array) bool { return a.Name == dim }); i >= 0 {
		o = f.set(&g.Coords[i])
	} else {
		name = fmt.Sprintf("This is a netCDF dimension but not a netCDF variable.%10d", n)
		o = &h5object{name: dim, set: &h5set{kind: h5float32, space: h5space(n)}}
	}
	for _, a := range []Attr{{"CLASS", "DIMENSION_SCALE"}, {"NAME", name}, {"_Netcdf4Dimid", f.dims}} {
		o.attrs = append(o.attrs, h5value(a))
	}
	f.dims++
	return &scale{set: o}
}

// set lays out an array.
func (f *netcdf) set(a *Array) *h5object {
	s := &h5set{space: h5space(a.Shape...), write: func(w io.Writer) error { return writeElements(w, a.Data) }}
	switch x := a.Data.(type) {
	case []float64:
		s.kind, s.size = h5float64, 8*len(x)
	case []int64:
		s.kind, s.size = h5int64, 8*len(x)
	case []string:
		s.kind, s.size = h5texts, 16*len(x)
		var texts []func() []byte
		for _, t := range x {
			texts = append(texts, f.heap.add(len(t), func() []byte { return []byte(t) }))
		}
		s.write = func(w io.Writer) error {
			_, err := w.Write(joined(texts)())
			return err
		}
	}
	o := &h5object{name: a.Name, set: s}
	for _, x := range a.Attrs {
		o.attrs = append(o.attrs, h5value(x))
	}
	return o
}

// joined puts pieces together.
func joined(pieces []func() []byte) func() []byte {
	return func() []byte {
		var b []byte
		for _, p := range pieces {
			b = append(b, p()...)
		}
		return b
	}
}
