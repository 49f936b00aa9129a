package state

import "bytes"

// Format is the newest format of commands that this program knows. While a
// cluster is upgraded its members are of two versions, and what the older ones
// do not know must not be in the log: package cluster holds such commands back
// until all members know their format.
//
// A release whose commands have a field or a meaning that the release before
// would not know raises Format. The commands that use it, and no others, say so
// by a method format() uint64.
//
// Format 2: Report and Decide hold events as proto messages, in base64; tokens have
// the role backup; placements have secrets; Tick.
// Format 3: Extend may have a goal and the specification that says so; RecordLatent and
// DropLatents; plans whose chains carry latent vectors; RevokeToken that spares the last administrator.
// Format 4: Remark.
// Format 5: Report that is brief, of a divergence or of coefficients; plans of models with a mean; Decide of a new beginning; Remark that is shown; Annotate.
const Format = 5

var formatField = []byte(`{"format":`)

// FormatOf returns the format of an encoded command.
func FormatOf(command []byte) uint64 {
	rest, ok := bytes.CutPrefix(command, formatField)
	if !ok {
		return 1
	}
	var n uint64
	for _, c := range rest {
		if c < '0' || c > '9' {
			break
		}
		n = 10*n + uint64(c-'0')
	}
	return max(n, 1)
}
