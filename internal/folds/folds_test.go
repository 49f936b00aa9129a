package folds

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// partition checks that rows that are left out are so once, and are never learnt from then.
func partition(t interface{ Errorf(string, ...any) }, c *Cut, n int) {
	seen := make([]int, n)
	for k := 1; k <= c.K; k++ {
		out, in := c.LeftOut(k), c.Learnt(k)
		if len(out) == 0 || len(in) == 0 {
			t.Errorf("fold %d: %d rows left out, %d learnt from", k, len(out), len(in))
		}
		for _, row := range out {
			seen[row]++
			if slices.Contains(in, row) {
				t.Errorf("fold %d: row %d is learnt from", k, row)
			}
		}
		if !c.Past && len(in)+len(out) != n {
			t.Errorf("fold %d: %d + %d rows of %d", k, len(in), len(out), n)
		}
		if !slices.IsSorted(out) || !slices.IsSorted(in) {
			t.Errorf("fold %d is not in order", k)
		}
	}
	for row, times := range seen {
		if times != 1 && !(c.Past && c.Fold[row] == 0 && times == 0) {
			t.Errorf("row %d is left out %d times", row, times)
		}
	}
}

func sizes(c *Cut) (out []int) {
	for k := 1; k <= c.K; k++ {
		out = append(out, len(c.LeftOut(k)))
	}
	return out
}

func TestRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 60).Draw(t, "n")
		k := rapid.IntRange(2, n).Draw(t, "k")
		c, err := Random(n, k, rapid.Uint64().Draw(t, "seed"))
		if err != nil {
			t.Fatal(err)
		}
		partition(t, c, n)
		if s := sizes(c); slices.Max(s)-slices.Min(s) > 1 || c.Unit != nil {
			t.Errorf("sizes %v, units %v", s, c.Unit)
		}
	})
	a, _ := Random(50, 5, 1)
	b, _ := Random(50, 5, 1)
	c, _ := Random(50, 5, 2)
	if !slices.Equal(a.Fold, b.Fold) || slices.Equal(a.Fold, c.Fold) {
		t.Error("folds are not a function of the seed")
	}
	if _, err := Random(4, 5, 1); err == nil || !strings.Contains(err.Error(), "5 folds of 4 rows") {
		t.Error(err)
	}
}

func TestGroups(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		labels := rapid.SliceOfN(rapid.StringMatching("[a-e]"), 2, 50).Draw(t, "labels")
		groups := CountGroups(labels)
		if groups < 2 {
			t.Skip()
		}
		k := rapid.IntRange(2, groups).Draw(t, "k")
		c, err := Groups(labels, k, rapid.Uint64().Draw(t, "seed"))
		if err != nil {
			t.Fatal(err)
		}
		partition(t, c, len(labels))
		rows := map[string]int{}
		for i, a := range labels {
			rows[a]++
			for j, b := range labels {
				if a == b && c.Fold[i] != c.Fold[j] {
					t.Errorf("group %s is split", a)
				}
				if (a == b) != (c.Unit[i] == c.Unit[j]) {
					t.Errorf("units of %s and %s", a, b)
				}
			}
		}
		largest := 0
		for _, n := range rows {
			largest = max(largest, n)
		}
		if s := sizes(c); slices.Max(s)-slices.Min(s) > largest {
			t.Errorf("sizes %v differ by more than the largest group, %d", s, largest)
		}
	})
	labels := strings.Split("a a a a b b c c d e", " ")
	c, err := Groups(labels, 3, 7)
	if s := sizes(c); err != nil || slices.Max(s) != 4 || slices.Min(s) != 3 {
		t.Error(s, err)
	}
	if _, err := Groups(labels, 6, 7); err == nil || !strings.Contains(err.Error(), "6 folds of 5 groups") {
		t.Error(err)
	}
}

func TestStretchesOfTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(rapid.Map(rapid.IntRange(-9, 9), func(x int) string { return fmt.Sprint(x) }), 3, 60).Draw(t, "times")
		times, err := Times(texts)
		if err != nil {
			t.Fatal(err)
		}
		different := slices.Max(times) + 1
		if different != CountGroups(texts) {
			t.Fatalf("%d different times of %q", different, texts)
		}
		if different < 3 {
			t.Skip()
		}
		blocks, err := Blocks(times, rapid.IntRange(2, different).Draw(t, "k"))
		if err != nil {
			t.Fatal(err)
		}
		forecasts, err := Forecasts(times, rapid.IntRange(2, different-1).Draw(t, "forecasts"))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []*Cut{blocks, forecasts} {
			partition(t, c, len(texts))
			for i := range texts {
				for j := range texts { // later rows are in later folds, those of one time in one
					if times[i] <= times[j] && c.Fold[i] > c.Fold[j] {
						t.Errorf("time %s is in fold %d, %s in %d", texts[i], c.Fold[i], texts[j], c.Fold[j])
					}
				}
			}
		}
		for k := 1; k <= forecasts.K; k++ {
			for _, past := range forecasts.Learnt(k) {
				for _, row := range forecasts.LeftOut(k) {
					if times[past] >= times[row] {
						t.Errorf("fold %d: time %s is predicted from %s", k, texts[row], texts[past])
					}
				}
			}
		}
	})
	for n, want := range map[int][]int{9: {3, 3, 3}, 10: {3, 4, 3}, 3: {1, 1, 1}} { // of different times
		times := make([]int, n)
		for i := range times {
			times[i] = n - 1 - i
		}
		if c, err := Blocks(times, 3); err != nil || !slices.Equal(sizes(c), want) {
			t.Errorf("%d rows: %v, %v", n, sizes(c), err)
		}
	}
	if c, err := Blocks([]int{0, 0, 0, 0, 0, 0, 1, 2}, 3); err != nil || !slices.Equal(sizes(c), []int{6, 1, 1}) {
		t.Error(sizes(c), err)
	}
	if _, err := Blocks([]int{0, 1, 0}, 3); err == nil || !strings.Contains(err.Error(), "3 stretches of 2 different times") {
		t.Error(err)
	}
	if _, err := Forecasts([]int{0, 1, 0}, 2); err == nil || !strings.Contains(err.Error(), "all stretches but the first") {
		t.Error(err)
	}
}

func TestTimes(t *testing.T) {
	for _, texts := range [][]string{
		{"3", "-1e3", "3.0", "20"},
		{"2024-02-01", "2023-12-31", "2024-02-01", "2024-10-09"},
		{"2024-02-01 10:00", "2024-02-01 09:59", "2024-02-01 10:00", "2024-02-01 11:00"},
		{"2024-02-01T10:00:00+02:00", "2024-02-01T07:00:00Z", "2024-02-01T08:00:00Z", "2024-02-01T08:00:00.5Z"},
		{"2024-02", "2024-01", "2024-02", "2024-11"},
	} {
		if got, err := Times(texts); err != nil || !slices.Equal(got, []int{1, 0, 1, 2}) {
			t.Errorf("%q: %v, %v", texts, got, err)
		}
	}
	for want, texts := range map[string][]string{
		`"Monday" is neither a number nor a time`:                             {"Monday"},
		`"inf" is neither`:                                                    {"inf"},
		`"2024-13-01" is not written as the first time is, "2024-01-01"`:      {"2024-01-01", "2024-13-01"},
		`"x" is not written as the first time is, "1"`:                        {"1", "x"},
		`"01/02/2024" is neither a number nor a time like 2006-01-02 or 2006`: {"01/02/2024"},
	} {
		if _, err := Times(texts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", texts, err)
		}
	}
}
