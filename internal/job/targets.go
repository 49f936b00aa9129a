package job

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// maxTargets is how many targets a document may name, each of which is a run.
const maxTargets = 100

// Part is the specification of one of the targets that a document names. Its name is that of the document with
// the suffix -Name.
type Part struct {
	Name string // the target's as folders and jobs can have it; empty if there is one target
	Spec *Spec
}

// ParseEach is Parse of a document whose data.target may be a list: it returns a specification for each target, in
// that order. If no inputs are named, the other targets are excluded from them.
func ParseEach(r io.Reader, file string) ([]Part, error) {
	text, err := readSpec(r, file)
	if err != nil {
		return nil, err
	}
	spec, d, err := decode(text, file)
	if err != nil {
		return nil, err
	}
	if d.targets == nil { // it is one name
		spec, err = d.complete(spec)
		return []Part{{Spec: spec}}, err
	}
	if msg := faultOfTargets(d.targets, spec); msg != "" {
		return nil, d.fail(d.pos[targetPath], targetPath, "%s", msg)
	}
	var parts []Part
	for i, name := range partNames(d.targets) {
		spec, d, err := decode(text, file) // anew: nothing is shared
		if err != nil {
			return nil, err
		}
		if len(d.targets) == 1 {
			name = ""
		} else {
			spec.Name += "-" + name
		}
		spec.Data.Target = d.targets[i]
		if len(spec.Data.Inputs) == 0 {
			for _, other := range d.targets {
				if other != spec.Data.Target && !slices.Contains(spec.Data.Exclude, other) {
					spec.Data.Exclude = append(spec.Data.Exclude, other)
				}
			}
		}
		if spec, err = d.complete(spec); err != nil {
			return nil, err
		}
		parts = append(parts, Part{name, spec})
	}
	return parts, nil
}

// faultOfTargets says what is wrong with a list of targets, or "".
func faultOfTargets(targets []string, spec *Spec) string {
	if len(targets) == 0 || len(targets) > maxTargets {
		return fmt.Sprintf("%d targets: name from 1 to %d columns", len(targets), maxTargets)
	}
	for i, t := range targets {
		switch {
		case t == "":
			return "the name of a target is empty"
		case slices.Contains(targets[:i], t):
			return fmt.Sprintf("%q is named twice", t)
		case slices.Contains(spec.Data.Inputs, t):
			return fmt.Sprintf("%q is one of data.inputs, too: take it out of one of the two", t)
		case t == spec.Data.Weights:
			return fmt.Sprintf("%q is data.weights, too: it cannot be both", t)
		case t == spec.Data.Offset:
			return fmt.Sprintf("%q is data.offset, too: it cannot be both", t)
		case slices.Contains(spec.Data.Exclude, t):
			return fmt.Sprintf("%q is excluded: take it out of one of the two", t)
		}
	}
	return ""
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// FileName returns a text as names of jobs and files can have it, which may be empty.
func FileName(text string) string { return strings.Trim(notInNames.ReplaceAllString(text, "-"), "-._") }

// partNames returns a name for each target that can be part of the name of a job and of a folder, and differs from
// the others also where upper and lower case are one.
func partNames(targets []string) []string {
	seen := map[string]bool{}
	out := make([]string, len(targets))
	for i, t := range targets {
		name := FileName(t)
		if name == "" || seen[strings.ToLower(name)] {
			name = strings.TrimPrefix(fmt.Sprintf("%s-%d", name, i+1), "-")
		}
		for seen[strings.ToLower(name)] {
			name += "-"
		}
		seen[strings.ToLower(name)] = true
		out[i] = name
	}
	return out
}
