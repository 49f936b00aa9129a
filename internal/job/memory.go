package job

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Memory is an amount of memory that the program may choose or do without: the
// zero Memory is "auto", and no bytes are "off".
type Memory struct {
	Set   bool
	Bytes int64
}

var memoryUnits = []string{"B", "KiB", "MiB", "GiB", "TiB"}

// ParseMemory reads an amount as in 4GiB, 512 MiB or 1.5GiB, or auto, or off.
func ParseMemory(text string) (Memory, error) {
	switch text {
	case "auto":
		return Memory{}, nil
	case "off":
		return Memory{Set: true}, nil
	}
	for i := len(memoryUnits) - 1; i >= 0; i-- {
		number, ok := strings.CutSuffix(text, memoryUnits[i])
		if !ok {
			continue
		}
		x, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		bytes := x * float64(int64(1)<<(10*i))
		if err != nil || !(bytes >= 1 && bytes < math.MaxInt64) {
			break
		}
		return Memory{true, int64(bytes)}, nil
	}
	return Memory{}, fmt.Errorf("%q is not an amount of memory: write it as 512MiB or 4GiB, or auto, or off", text)
}

// Or returns the bytes, or those given if it is auto.
func (m Memory) Or(bytes int64) int64 {
	if m.Set {
		return m.Bytes
	}
	return bytes
}

// String returns the amount as it is written, in the largest unit that keeps it
// exact.
func (m Memory) String() string {
	switch {
	case !m.Set:
		return "auto"
	case m.Bytes == 0:
		return "off"
	}
	x, unit := m.Bytes, 0
	for x%1024 == 0 && unit < len(memoryUnits)-1 {
		x, unit = x/1024, unit+1
	}
	return fmt.Sprintf("%d%s", x, memoryUnits[unit])
}

// MarshalYAML returns the amount as it is written.
func (m Memory) MarshalYAML() (any, error) { return m.String(), nil }

// MarshalText returns the amount as it is written.
func (m Memory) MarshalText() ([]byte, error) { return []byte(m.String()), nil }
