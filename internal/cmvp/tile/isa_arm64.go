package tile

// Every processor has NEON.
func vectorISAs() []ISA { return []ISA{NEON} }
