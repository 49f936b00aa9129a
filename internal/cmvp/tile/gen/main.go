// Command gen writes the assembly kernels of package tile for one instruction
// set. Run it by go generate in that package.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/mmcloughlin/avo/build"
)

// The shape of a strip, as in package tile.
const (
	size  = 256
	strip = 8
	panel = 32
)

func main() {
	command := flag.NewFlagSet("gen", flag.ExitOnError)
	isa := command.String("isa", "", "avx2, avx512 or neon")
	flags := build.NewFlags(command)
	_ = command.Parse(os.Args[1:])
	width, ok := map[string]int{"neon": 16, "avx2": 32, "avx512": 64}[*isa]
	if !ok {
		panic(fmt.Sprintf("unknown instruction set %q", *isa))
	}
	kernels(*isa, width)
	cfg := flags.Config()
	if *isa == "neon" {
		cfg.Passes[0] = compileNEON
	}
	if status := build.Main(cfg, asm); status != 0 {
		os.Exit(status)
	}
}

// kernels emits all kernels for vectors of width bytes.
func kernels(isa string, width int) {
	var double *generator
	for _, elem := range []int{8, 4} {
		g := newGenerator(isa, width, elem)
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
}
