// The generator of the assembly kernels is a module of its own, so that users
// of ulisse do not inherit what it needs. avo's own requirement of x/tools does
// not compile with Go 1.26.
module github.com/ulisse-gp/ulisse/internal/cmvp/tile/gen

go 1.26

require github.com/mmcloughlin/avo v0.6.0

require (
	golang.org/x/mod v0.23.0 // indirect
	golang.org/x/sync v0.11.0 // indirect
	golang.org/x/tools v0.30.0 // indirect
)
