package main

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/yuin/goldmark/ast"
)

// anchors names headings as GitHub does, so that a link to one is good in both
// places.
type anchors struct{ seen map[string]int }

// Generate is of parser.IDs.
func (a *anchors) Generate(value []byte, _ ast.NodeKind) []byte {
	slug := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), unicode.IsMark(r), r == '-', r == '_':
			return unicode.ToLower(r)
		case unicode.IsSpace(r):
			return '-'
		}
		return -1
	}, strings.TrimSpace(string(value)))
	n := a.seen[slug]
	a.seen[slug]++
	if n > 0 {
		return fmt.Appendf(nil, "%s-%d", slug, n)
	}
	return []byte(slug)
}

// Put is of parser.IDs.
func (a *anchors) Put(value []byte) { a.seen[string(value)]++ }
