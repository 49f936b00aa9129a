package tile

import "golang.org/x/sys/cpu"

func vectorISAs() []ISA {
	var isas []ISA
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		isas = append(isas, AVX2)
		if cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ {
			isas = append(isas, AVX512)
		}
	}
	return isas
}
