// Package folds cuts rows into folds, which cross-validation leaves out in turn. Which way is right
// depends on what rows a model is to predict later: rows like those that it has learnt from
// (Random), rows of groups that it has not seen (Groups), or stretches of time that it has not seen,
// with what comes after them known (Blocks) or not (Forecasts).
package folds

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ulisse-gp/ulisse/internal/random"
)

// Cut says what is left out when, and what is learnt from then.
type Cut struct {
	K int `json:"folds"`
	// Fold of each row is when it is left out, from 1; 0: never.
	Fold []int `json:"fold"`
	// Unit of each row: rows of one may depend on one another, rows of different ones are taken
	// not to, so that standard errors are those between units. nil: each row is one.
	Unit []int `json:"unit,omitempty"`
	// Past says that a fold is predicted from the folds before it alone.
	Past bool `json:"past,omitempty"`
}

// Learnt returns the rows that are learnt from when fold k is left out, in increasing order.
func (c *Cut) Learnt(k int) []int {
	return c.rows(func(fold int) bool { return fold < k || fold > k && !c.Past })
}

// LeftOut returns the rows of fold k, in increasing order.
func (c *Cut) LeftOut(k int) []int {
	return c.rows(func(fold int) bool { return fold == k })
}

func (c *Cut) rows(of func(fold int) bool) (rows []int) {
	for row, fold := range c.Fold {
		if of(fold) {
			rows = append(rows, row)
		}
	}
	return rows
}

// shuffled returns 0, …, n−1 in the order that the seed says.
func shuffled(n int, seed uint64) []int {
	return random.Key{Seed: seed}.Stream(random.Folds, 0).Perm(n)
}

// Random cuts n rows at random into k folds whose sizes differ by one at most.
func Random(n, k int, seed uint64) (*Cut, error) {
	if k > n {
		return nil, fmt.Errorf("%d folds of %d rows: each needs one at least", k, n)
	}
	c := &Cut{K: k, Fold: make([]int, n)}
	for i, row := range shuffled(n, seed) {
		c.Fold[row] = 1 + i%k
	}
	return c, nil
}

// Groups cuts rows into k folds such that rows with the same label, a group, are left out together.
// Groups are taken in the order of their size, those of one size in random order, and each goes to
// the fold that has the fewest rows yet.
func Groups(labels []string, k int, seed uint64) (*Cut, error) {
	number := map[string]int{}
	c := &Cut{K: k, Fold: make([]int, len(labels)), Unit: make([]int, len(labels))}
	var size []int
	for row, label := range labels {
		g, seen := number[label]
		if !seen {
			g = len(size)
			number[label], size = g, append(size, 0)
		}
		c.Unit[row] = g
		size[g]++
	}
	if k > len(size) {
		return nil, fmt.Errorf("%d folds of %d groups: each needs one at least", k, len(size))
	}
	order := shuffled(len(size), seed)
	slices.SortStableFunc(order, func(a, b int) int { return size[b] - size[a] })
	fold, rows := make([]int, len(size)), make([]int, k) // of each group; in each fold
	for _, g := range order {
		least := slices.Index(rows, slices.Min(rows))
		fold[g], rows[least] = 1+least, rows[least]+size[g]
	}
	for row, g := range c.Unit {
		c.Fold[row] = fold[g]
	}
	return c, nil
}

// CountGroups returns how many different labels there are.
func CountGroups(labels []string) int {
	return len(slices.Compact(slices.Sorted(slices.Values(labels))))
}

// Blocks cuts rows, given the places of their times among all different times, into k stretches of
// time of nearly equal numbers of rows. Rows of one time stay together. Neighbours in time depend on
// one another, so that a stretch is a unit.
func Blocks(times []int, k int) (*Cut, error) {
	fold, err := stretches(times, k)
	if err != nil {
		return nil, err
	}
	return &Cut{K: k, Fold: fold, Unit: slices.Clone(fold)}, nil
}

// Forecasts is Blocks for models that are to predict what comes: of k+1 stretches each but the first
// is predicted from those before it.
func Forecasts(times []int, k int) (*Cut, error) {
	fold, err := stretches(times, k+1)
	if err != nil {
		return nil, fmt.Errorf("%w; forecasts leave out all stretches but the first", err)
	}
	for row := range fold {
		fold[row]--
	}
	return &Cut{K: k, Fold: fold, Unit: slices.Clone(fold), Past: true}, nil
}

// stretches numbers k stretches of time from 1. Each ends where its share of the rows is nearest.
func stretches(times []int, k int) ([]int, error) {
	different := 1 + slices.Max(times)
	if k > different {
		return nil, fmt.Errorf("%d stretches of %d different times: each needs one at least", k, different)
	}
	rows := make([]int, different)
	for _, t := range times {
		rows[t]++
	}
	of := make([]int, different) // stretch of each time
	at, empty, before := 1, true, 0
	for t, here := range rows {
		full := k*(2*before+here) > 2*at*len(times) // its middle lies beyond the end of the stretch
		if !empty && at < k && (full || different-t == k-at) {
			at, empty = at+1, true
		}
		of[t], empty, before = at, false, before+here
	}
	out := make([]int, len(times))
	for row, t := range times {
		out[row] = of[t]
	}
	return out, nil
}

// layouts are the ways in which dates and times are written.
var layouts = []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04",
	"2006-01-02", "2006-01", "2006/01/02", "2006/01/02 15:04:05"}

// Times returns the place of each time among all different ones, from 0. Times are all numbers, or are all
// written as the first one is.
func Times(texts []string) ([]int, error) {
	if len(texts) == 0 {
		return nil, errors.New("there are no times")
	}
	if _, err := number(texts[0]); err == nil {
		return places(texts, number, cmp.Compare[float64])
	}
	for _, layout := range layouts {
		parse := func(s string) (time.Time, error) { return time.Parse(layout, strings.TrimSpace(s)) }
		if _, err := parse(texts[0]); err == nil {
			return places(texts, parse, time.Time.Compare)
		}
	}
	return nil, fmt.Errorf("%q is neither a number nor a time like 2006-01-02 or 2006-01-02T15:04:05Z", texts[0])
}

func number(s string) (float64, error) {
	x, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err == nil && (math.IsNaN(x) || math.IsInf(x, 0)) {
		err = strconv.ErrSyntax
	}
	return x, err
}

// places ranks texts by what they are parsed to.
func places[T any](texts []string, parse func(string) (T, error), compare func(a, b T) int) ([]int, error) {
	values, order := make([]T, len(texts)), make([]int, len(texts))
	for i, text := range texts {
		var err error
		if values[i], err = parse(text); err != nil {
			return nil, fmt.Errorf("%q is not written as the first time is, %q", text, texts[0])
		}
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return compare(values[a], values[b]) })
	out, place := make([]int, len(texts)), 0
	for i, row := range order {
		if i > 0 && compare(values[order[i-1]], values[row]) != 0 {
			place++
		}
		out[row] = place
	}
	return out, nil
}
