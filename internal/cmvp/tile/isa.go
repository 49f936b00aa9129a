package tile

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
)

// ISA is an instruction set that there are kernels for.
type ISA int

// The instruction sets. Portable is plain Go, for every machine.
const (
	Portable ISA = iota
	AVX2         // with FMA
	AVX512       // F and DQ
	NEON         // of arm64
)

var isaNames = []string{"portable", "avx2", "avx512", "neon"}

// String returns the name by which ISAVariable selects it.
func (i ISA) String() string { return isaNames[i] }

// ISAVariable is the environment variable that forces an instruction set.
const ISAVariable = "ULISSE_ISA"

// Available returns the instruction sets that this machine has, the fastest
// last.
func Available() []ISA { return append([]ISA{Portable}, vectorISAs()...) }

// Default returns the fastest instruction set of this machine, or the one
// that ISAVariable names. It is an error if that is unknown or unavailable.
var Default = sync.OnceValues(func() (ISA, error) { return choose(os.Getenv(ISAVariable), Available()) })

// choose returns the instruction set of the given name, or the last if the
// name is empty.
func choose(name string, available []ISA) (ISA, error) {
	if name == "" {
		return available[len(available)-1], nil
	}
	var names []string
	for _, isa := range available {
		names = append(names, isa.String())
		if isa.String() == name {
			return isa, nil
		}
	}
	if slices.Contains(isaNames, name) {
		return 0, fmt.Errorf("%s=%s: this machine only has %s", ISAVariable, name, strings.Join(names, ", "))
	}
	return 0, fmt.Errorf("%s=%q is not one of %s", ISAVariable, name, strings.Join(isaNames, ", "))
}
