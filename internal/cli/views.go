package cli

import (
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// some returns a list that is [] in JSON where it is empty, not null.
func some(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// age tells how long ago a moment was, in its largest unit.
func age(t *timestamppb.Timestamp, now time.Time) string {
	if t == nil {
		return ""
	}
	switch d := now.Sub(t.AsTime()); {
	case d < 0:
		return "now"
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0fs", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0fm", math.Floor(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0fh", math.Floor(d.Hours()))
	default:
		return fmt.Sprintf("%.0fd", math.Floor(d.Hours()/24))
	}
}

// number formats a diagnostic, or nothing if there is none.
func number(format string, x float64) string {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return ""
	}
	return fmt.Sprintf(format, x)
}
