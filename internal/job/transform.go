package job

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ulisse-gp/ulisse/internal/likelihood"
	"github.com/ulisse-gp/ulisse/internal/nearest"
)

// transforms are the words for what is made of the target before it is learnt.
var transforms = append([]string{"none"}, likelihood.Transforms...)

// transform returns the kind of the target's transform.
func (d *Data) transform() string {
	if d.Transform == "none" {
		return likelihood.None
	}
	return d.Transform
}

// faultOfTransform is fault for the transform of the target.
func (s *Spec) faultOfTransform() (path, msg string) {
	d := &s.Data
	switch {
	case d.Transform == "":
	case !slices.Contains(transforms, d.Transform):
		msg = fmt.Sprintf("%q is not one of %s", d.Transform, strings.Join(transforms, ", "))
		if near, ok := nearest.Word(d.Transform, transforms); ok {
			msg += fmt.Sprintf(": did you mean %q?", near)
		}
	case d.transform() == likelihood.None:
	case d.Synthetic != nil:
		msg = "generated targets are normal as they are: leave it out, or give data.path"
	case s.Model.Noise != nil && s.Model.Noise.Column != "":
		msg = "noise that is known of the target is not that of its transform: transform the target and model.noise.column in the table, where sd/y is the standard deviation of log(y), about"
	}
	if msg == "" {
		return "", ""
	}
	return "data.transform", msg
}
