package job

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ulisse-gp/ulisse/internal/nearest"
	"github.com/ulisse-gp/ulisse/internal/precond"
	"github.com/ulisse-gp/ulisse/internal/sampler"
	"github.com/ulisse-gp/ulisse/internal/sparse"
)

// FieldError is a mistake in a specification.
type FieldError struct {
	File         string // "" for a spec that came from elsewhere
	Line, Column int    // 0 where the fault is no place in the text; the column too where only the line is known
	Path         string // the field, as in solver.preconditioner.rank
	Msg          string
}

func (e *FieldError) Error() string {
	var parts []string
	if e.File != "" {
		parts = append(parts, e.File)
	}
	switch {
	case e.Column > 0:
		parts = append(parts, fmt.Sprintf("line %d, column %d", e.Line, e.Column))
	case e.Line > 0:
		parts = append(parts, fmt.Sprintf("line %d", e.Line))
	}
	if e.Path != "" {
		parts = append(parts, e.Path)
	}
	return strings.Join(append(parts, e.Msg), ": ")
}

// maxSpecBytes bounds a specification: a thousand times a usual one.
const maxSpecBytes = 1 << 20

// targetPath is the one field that may be a list in a document and is one name in a Spec.
const targetPath = "data.target"

// Parse reads a specification in YAML (or JSON, which YAML contains), fills in
// the defaults and validates it. file names it in errors, which are
// *FieldError. It takes one target: see ParseEach.
func Parse(r io.Reader, file string) (*Spec, error) {
	text, err := readSpec(r, file)
	if err != nil {
		return nil, err
	}
	spec, d, err := decode(text, file)
	if err != nil {
		return nil, err
	}
	switch len(d.targets) {
	case 0:
	case 1:
		spec.Data.Target = d.targets[0]
	default:
		return nil, d.fail(d.pos[targetPath], targetPath, "a posterior is of one target, and this names %d: name one here, or give the list to ulisse run or ulisse submit, which make a run of each", len(d.targets))
	}
	return d.complete(spec)
}

func readSpec(r io.Reader, file string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxSpecBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxSpecBytes {
		return nil, &FieldError{File: file, Msg: fmt.Sprintf("more than %d bytes: this is not a specification", maxSpecBytes)}
	}
	return text, nil
}

// decode fills in a specification, with the defaults, and leaves it to complete.
func decode(text []byte, file string) (*Spec, *decoder, error) {
	spec := Default()
	d := &decoder{file: file, pos: map[string]*yaml.Node{}}
	return &spec, d, d.parse(text, &spec)
}

// complete validates a specification that was decoded, with the defaults that depend on other fields.
func (d *decoder) complete(spec *Spec) (*Spec, error) {
	if _, given := d.pos["sampler.method"]; !given {
		spec.Sampler.Method = spec.method()
	}
	if path, msg := spec.fault(); msg != "" {
		return nil, d.fail(d.nearest(path), path, "%s", msg)
	}
	return spec, nil
}

// method returns the method of a specification that names none.
func (s *Spec) method() string {
	m, sm, so := &s.Model, &s.Sampler, &s.Solver
	kind := so.Preconditioner.Kind
	switch {
	case m.Approximation != nil && m.Approximation.Kind == string(sparse.SGPMC):
		return sampler.Approximating
	case m.Several():
		return sampler.Slicing
	case !m.Gaussian():
		return sampler.Augmenting
	case sm.Warmup.Set || sm.Step.Set || sm.Probes.Set || sm.ProbeKind != "auto",
		so.Method != "pcg" || kind == "none" || slices.Contains(precond.InnerKinds(), kind):
		return sampler.Stepping
	}
	return sampler.Default
}

// decoder fills a struct from a YAML tree and notes where each field stood.
type decoder struct {
	file    string
	pos     map[string]*yaml.Node
	targets []string // those of data.target, if that is a list
}

func (d *decoder) fail(n *yaml.Node, path, format string, args ...any) error {
	e := &FieldError{File: d.file, Path: path, Msg: fmt.Sprintf(format, args...)}
	if n != nil {
		e.Line, e.Column = n.Line, n.Column
	}
	return e
}

// nearest returns the node of a path or of its nearest parent that is written.
func (d *decoder) nearest(path string) *yaml.Node {
	for path != "" {
		if n, ok := d.pos[path]; ok {
			return n
		}
		i := strings.LastIndexByte(path, '.')
		if i < 0 {
			break
		}
		path = path[:i]
	}
	return nil
}

func (d *decoder) parse(text []byte, spec *Spec) (err error) {
	defer func() { // the scanner panics on some malformed input
		if p := recover(); p != nil {
			err = d.fail(nil, "", "not YAML: %v", p)
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if err == io.EOF {
			return d.fail(nil, "", "the specification is empty")
		}
		return d.notYAML(err)
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return d.fail(nil, "", "more than one YAML document: a specification is one")
	}
	if len(doc.Content) != 1 {
		return d.fail(nil, "", "the specification is empty")
	}
	return d.decode(doc.Content[0], reflect.ValueOf(spec).Elem(), "")
}

// notYAML returns what the scanner says, with the line that it names.
func (d *decoder) notYAML(err error) error {
	text := strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " ")
	e := &FieldError{File: d.file, Msg: "not YAML: " + text}
	if n, err := fmt.Sscanf(text, "line %d: ", &e.Line); n == 1 && err == nil {
		_, text, _ = strings.Cut(text, ": ")
		e.Msg = "not YAML: " + text
	}
	return e
}

func (d *decoder) decode(n *yaml.Node, v reflect.Value, path string) error {
	if n.Kind == yaml.AliasNode {
		return d.fail(n, path, "aliases are not allowed here")
	}
	d.pos[path] = n
	if path == targetPath && n.Kind == yaml.SequenceNode {
		return d.list(n, reflect.ValueOf(&d.targets).Elem(), path)
	}
	switch p := v.Addr().Interface().(type) {
	case *Auto[int]:
		if isAuto(n) {
			*p = Auto[int]{}
			return nil
		}
		p.Set = true
		return d.scalar(n, reflect.ValueOf(&p.Value).Elem(), path, "a whole number or auto")
	case *Auto[float64]:
		if isAuto(n) {
			*p = Auto[float64]{}
			return nil
		}
		p.Set = true
		return d.scalar(n, reflect.ValueOf(&p.Value).Elem(), path, "a number or auto")
	case *Memory:
		m, err := ParseMemory(n.Value)
		if n.Kind != yaml.ScalarNode {
			err = fmt.Errorf("%s stands where an amount of memory should: write it as 512MiB or 4GiB, or auto, or off", quote(n))
		}
		if err != nil {
			return d.fail(n, path, "%v", err)
		}
		*p = m
		return nil
	case *Duration:
		t, err := time.ParseDuration(n.Value)
		if n.Kind != yaml.ScalarNode || err != nil {
			return d.fail(n, path, "%s is not a time span: write it as 90s, 30m or 1h30m", quote(n))
		}
		*p = Duration(t)
		return nil
	case *Floats:
		if n.Kind != yaml.SequenceNode {
			n = &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{n}, Line: n.Line, Column: n.Column}
		}
		return d.list(n, v, path)
	}
	switch v.Kind() {
	case reflect.Struct:
		return d.mapping(n, v, path)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return d.mapping(n, v.Elem(), path)
	case reflect.Slice:
		return d.list(n, v, path)
	case reflect.Map:
		return d.named(n, v, path)
	}
	return d.scalar(n, v, path, map[reflect.Kind]string{
		reflect.String: "text", reflect.Bool: "true or false", reflect.Int: "a whole number",
		reflect.Uint64: "a whole number from 0", reflect.Float64: "a number",
	}[v.Kind()])
}

func isAuto(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Value == "auto" }

func quote(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	const most = 60
	if r := []rune(n.Value); len(r) > most {
		return strconv.Quote(string(r[:most])) + "…"
	}
	return strconv.Quote(n.Value)
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, path string) error {
	if n.Kind != yaml.MappingNode && path == "" {
		return d.fail(n, path, "%s stands where fields should: a specification has name:, data: and more, see docs/job-spec.md; a table goes under data: path:, or --data", quote(n))
	}
	if n.Kind != yaml.MappingNode {
		return d.fail(n, path, "%s stands where fields should", quote(n))
	}
	fields, names := fieldsOf(v)
	texts := textsOf(v)
	seen := map[string]bool{}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := strings.TrimPrefix(path+"."+key.Value, ".")
		field, ok := fields[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode:
			return d.fail(key, path, "a field's name must be a word")
		case !ok && texts.IsValid() && isQuantity(key.Value):
			text := reflect.New(texts.Type().Elem()).Elem()
			if seen[key.Value] {
				return d.fail(key, at, "the field is given twice")
			}
			seen[key.Value] = true
			if err := d.decode(value, text, at); err != nil {
				return err
			}
			if texts.IsNil() {
				texts.Set(reflect.MakeMap(texts.Type()))
			}
			texts.SetMapIndex(reflect.ValueOf(key.Value), text)
			continue
		case !ok && strings.HasSuffix(key.Value, ")"):
			return d.fail(key, path, "a text with a comma needs quotes between braces: write \"gamma(1,1)\"")
		case !ok:
			return d.fail(key, strings.TrimPrefix(path+"."+oneWord(key.Value), "."), "unknown field: %s", suggest(key.Value, names))
		case seen[key.Value]:
			return d.fail(key, at, "the field is given twice")
		}
		seen[key.Value] = true
		if err := d.decode(value, field, at); err != nil {
			return err
		}
	}
	return nil
}

// fieldsOf returns the fields of a struct by the names that they have in a
// specification, and the names in order. An inline map holds further structs by
// name, the fields of an inline struct are as those beside it.
func fieldsOf(v reflect.Value) (fields map[string]reflect.Value, names []string) {
	fields = map[string]reflect.Value{}
	for i := range v.NumField() {
		name, option, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		if option != "inline" {
			fields[name], names = v.Field(i), append(names, name)
			continue
		}
		if v.Field(i).Kind() == reflect.Struct {
			more, of := fieldsOf(v.Field(i))
			maps.Copy(fields, more)
			names = append(names, of...)
			continue
		}
		sections, _ := v.Field(i).Interface().(map[string]any)
		for _, section := range slices.Sorted(maps.Keys(sections)) {
			fields[section], names = reflect.ValueOf(sections[section]).Elem(), append(names, section)
		}
	}
	return fields, names
}

// textsOf returns the inline map of texts of a struct, which takes fields of any name that
// stands for a quantity. It is not valid if there is none.
func textsOf(v reflect.Value) reflect.Value {
	for i := range v.NumField() {
		if _, ok := v.Field(i).Interface().(map[string]string); ok {
			return v.Field(i)
		}
	}
	return reflect.Value{}
}

func oneWord(s string) string {
	q := strconv.Quote(s)
	return q[1 : len(q)-1]
}

// absent says of fields that people know from other programs what there is in their place.
var absent = map[string]string{
	"family":  "the distribution of the target given the latent function is model.likelihood",
	"weights": "a column of weights, which the variance of the noise is divided by, is data.weights",
	"noise":   "what noise the rows have is said under model.noise, a prior of its variance is model.priors.lambda",
	"folds":   "a run has one set of rows that are held out (data.holdout): for K folds run it K times with other seeds",
}

// suggest says what there is in place of a field that is not: what people mean by a word of
// other programs, the nearest known word, if one is near, or all of them.
func suggest(word string, known []string) string {
	if say, ok := absent[word]; ok {
		return say
	}
	if best, ok := nearest.Word(word, known); ok {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return "the fields here are " + strings.Join(known, ", ")
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, path string) error {
	if n.Kind != yaml.SequenceNode {
		return d.fail(n, path, "%s stands where a list should: write [a, b]", quote(n))
	}
	out := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, c := range n.Content {
		if err := d.decode(c, out.Index(i), fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	v.Set(out)
	return nil
}

// named fills a map, whose keys are names of the user's.
func (d *decoder) named(n *yaml.Node, v reflect.Value, path string) error {
	if n.Kind != yaml.MappingNode {
		return d.fail(n, path, "%s stands where names should, each with what it is to be: write {name: value}", quote(n))
	}
	out := reflect.MakeMap(v.Type())
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], reflect.New(v.Type().Elem()).Elem()
		at := path + "." + oneWord(key.Value)
		if key.Kind != yaml.ScalarNode {
			return d.fail(key, path, "a name must be a word")
		}
		if out.MapIndex(reflect.ValueOf(key.Value)).IsValid() {
			return d.fail(key, at, "the name is given twice")
		}
		if err := d.decode(n.Content[i+1], value, at); err != nil {
			return err
		}
		out.SetMapIndex(reflect.ValueOf(key.Value), value)
	}
	v.Set(out)
	return nil
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, path, want string) error {
	bad := func() error { return d.fail(n, path, "%s is not %s", quote(n), want) }
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return bad()
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(n.Value)
	case reflect.Bool:
		b, err := strconv.ParseBool(n.Value)
		if err != nil || n.Tag != "!!bool" {
			return bad()
		}
		v.SetBool(b)
	case reflect.Int:
		x, err := strconv.Atoi(n.Value)
		if err != nil {
			return bad()
		}
		v.SetInt(int64(x))
	case reflect.Uint64:
		x, err := strconv.ParseUint(n.Value, 10, 64)
		if err != nil {
			return bad()
		}
		v.SetUint(x)
	case reflect.Float64:
		x, err := strconv.ParseFloat(n.Value, 64)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
			return bad()
		}
		v.SetFloat(x)
	}
	return nil
}

// ParseString reads a specification that was written by Spec.YAML.
func ParseString(text string) (*Spec, error) { return Parse(strings.NewReader(text), "") }
