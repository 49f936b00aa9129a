// Package tile holds the innermost loops of covariance products, for each
// instruction set and precision: a covariance strip is evaluated from packed
// inputs, then applied to columns of vectors from the first-level cache.
//
// A strip is Strip rows of a matrix against up to Size columns; its elements
// lie in k[r*Size+j]. Columns come in whole panels of Panel points; what lies
// beyond the last real column has weight zero. Columns of vectors are stored
// tile by tile: element j of column c is v[c*Size+j].
//
// The order in which the terms of a sum are added is fixed for each
// instruction set, and a column's sum does not depend on the columns computed
// with it (see the kernels).
package tile

const (
	// Size is the number of rows and columns of a tile.
	Size = 256
	// Strip is the number of rows that a kernel works on at once.
	Strip = 8
	// Panel is the number of points in a panel, the unit of packed inputs.
	Panel = 32
)

// Real is the type of the arithmetic inside a tile.
type Real interface{ float32 | float64 }

// Panels returns the number of panels that n points take.
func Panels(n int) int { return (n + Panel - 1) / Panel }

// Pad returns n rounded up to a whole number of panels.
func Pad(n int) int { return Panels(n) * Panel }
