package job

import (
	"slices"
	"strings"
	"testing"
)

const manyTargets = `
name: soil
data: {path: t.csv, target: [ph, "org. C (%)", "org/C %", PH], exclude: [id], transform: yeo-johnson}
`

// A list of targets is one specification for each, none of which is an input of another.
func TestParseEach(t *testing.T) {
	parts, err := ParseEach(strings.NewReader(manyTargets), "s.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := []struct{ name, target, excluded string }{
		{"ph", "ph", "id,org. C (%),org/C %,PH"}, {"org.-C", "org. C (%)", "id,ph,org/C %,PH"}, {"org-C", "org/C %", "id,ph,org. C (%),PH"}, {"PH-4", "PH", "id,ph,org. C (%),org/C %"},
	}
	if len(parts) != len(want) {
		t.Fatalf("%d parts", len(parts))
	}
	for i, w := range want {
		p := parts[i]
		if p.Name != w.name || p.Spec.Name != "soil-"+w.name || p.Spec.Data.Target != w.target || strings.Join(p.Spec.Data.Exclude, ",") != w.excluded || p.Spec.Data.Transform != "yeo-johnson" {
			t.Errorf("part %d is %s, %+v", i, p.Name, p.Spec)
		}
		text, err := p.Spec.YAML()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseString(string(text)); err != nil { // what goes to a cluster, and into a folder
			t.Error(err)
		}
	}
	parts[0].Spec.Sampler.Sections["sgld"] = nil
	if parts[1].Spec.Sampler.Sections["sgld"] == nil {
		t.Error("specifications share what they are told")
	}
	for text, name := range map[string]string{"target: [y]": "soil", "target: y": "soil"} {
		parts, err := ParseEach(strings.NewReader("name: soil\ndata: {path: t.csv, "+text+"}"), "")
		if err != nil || len(parts) != 1 || parts[0].Name != "" || parts[0].Spec.Name != name || parts[0].Spec.Data.Target != "y" {
			t.Errorf("%s: %v, %v", text, parts, err)
		}
	}
	if s, err := ParseString("name: soil\ndata: {path: t.csv, target: [y], inputs: [x]}"); err != nil || s.Data.Target != "y" {
		t.Errorf("a list of one: %v", err)
	}
	named, err := ParseEach(strings.NewReader("name: soil\ndata: {path: t.csv, target: [y, z], inputs: [x]}"), "")
	if err != nil || len(named[0].Spec.Data.Exclude) > 0 || !slices.Equal(named[1].Spec.Data.Inputs, []string{"x"}) {
		t.Errorf("%v", err)
	}
}

func TestMistakesInTargets(t *testing.T) {
	for data, want := range map[string]string{
		"target: [a, b, a]":            `data.target: "a" is named twice`,
		"target: []":                   "data.target: 0 targets: name from 1 to 100 columns",
		"target: [a, '']":              "data.target: the name of a target is empty",
		"target: [a, b], inputs: [b]":  `data.target: "b" is one of data.inputs, too: take it out of one of the two`,
		"target: [a, b], exclude: [a]": `data.target: "a" is excluded`,
		"target: [a, [b]]":             "data.target[1]: a list is not text",
		"target: {a: b}":               "data.target: a mapping is not text",
		"target: [a, b], weights: b":   `data.target: "b" is data.weights, too`,
	} {
		_, err := ParseEach(strings.NewReader("name: x\ndata: {path: t.csv, "+data+"}"), "s.yaml")
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "s.yaml: line 2") {
			t.Errorf("%s: %v", data, err)
		}
	}
	_, err := ParseString(manyTargets)
	if want := "line 3, column 29: data.target: a posterior is of one target, and this names 4: name one here, or give the list to ulisse run or ulisse submit"; err == nil || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
}
