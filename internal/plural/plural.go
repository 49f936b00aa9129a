// Package plural writes numbers with their nouns.
package plural

import (
	"strconv"

	"github.com/dustin/go-humanize/english"
)

// Of returns n and a noun, which is in the plural unless n is 1.
func Of(n int, noun string) string {
	return strconv.Itoa(n) + " " + english.PluralWord(n, noun, "")
}
