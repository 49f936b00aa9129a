// Package nearest finds what somebody who mistyped a word may have meant.
package nearest

import (
	"math"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// Word returns the known word that is nearest to a word, if one is near: it takes fewer changes
// than a third of its letters, or one. Capitals, blanks, hyphens and underscores count for nothing.
func Word(word string, known []string) (string, bool) {
	best, distance := "", math.MaxInt
	for _, k := range known {
		if d := changes(plain(word), plain(k)); d < distance {
			best, distance = k, d
		}
	}
	n := len([]rune(best))
	return best, distance < n && distance <= max(1, (n+1)/3)
}

// changes counts what turns one word into another; letters that have changed places are one change.
func changes(a, b string) int {
	x, y := []rune(a), []rune(b)
	slices.Sort(x)
	slices.Sort(y)
	if a != b && slices.Equal(x, y) {
		return 1
	}
	return levenshtein.ComputeDistance(a, b)
}

var ignored = strings.NewReplacer(" ", "", "_", "", "-", "")

func plain(s string) string { return ignored.Replace(strings.ToLower(s)) }
