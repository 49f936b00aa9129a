package job

import (
	"reflect"
	"strings"
)

// Differs returns the first field in which two specifications say other things of a run, but for
// when it is to end, which may change later: stop and sampler.draws. It returns "" for none.
func (s *Spec) Differs(other *Spec) string {
	a, b := *s, *other
	a.Stop, a.Sampler.Draws = b.Stop, b.Sampler.Draws
	return differs(reflect.ValueOf(a), reflect.ValueOf(b))
}

func differs(a, b reflect.Value) string {
	for i := range a.NumField() {
		x, y := a.Field(i), b.Field(i)
		if reflect.DeepEqual(x.Interface(), y.Interface()) {
			continue
		}
		name, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("yaml"), ",")
		inner := ""
		if x.Kind() == reflect.Struct && x.NumField() > 0 && x.Type().Field(0).Tag.Get("yaml") != "" {
			inner = differs(x, y)
		}
		return strings.Trim(name+"."+inner, ".")
	}
	return ""
}
