// Command gen writes the assembly kernels of package tile for one instruction
// set. Run it by go generate in that package.
package main

import (
	"flag"
	"fmt"

	. "github.com/mmcloughlin/avo/build"
)

// The shape of a strip, as in package tile.
const (
	size  = 256
	strip = 8
	panel = 32
)

func main() {
	isa := flag.String("isa", "", "avx2 or avx512")
	flag.Parse()
	width, ok := map[string]int{"avx2": 32, "avx512": 64}[*isa]
	if !ok {
		panic(fmt.Sprintf("unknown instruction set %q", *isa))
	}
	var double *generator
	for _, elem := range []int{8, 4} {
		g := newGenerator(*isa, width, elem)
		for _, f := range families {
			g.eval(f, values)
			for _, out := range f.outs {
				if elem == 8 {
					g.eval(f, out)
				}
			}
		}
		g.direct()
		g.trans()
		g.addition()
		g.multiply()
		g.addScaled()
		if elem == 8 {
			double = g
			g.weigh(true)
			g.weigh(false)
			g.spread()
			g.peak()
		}
	}
	double.update()
	double.solve()
	Generate()
}
