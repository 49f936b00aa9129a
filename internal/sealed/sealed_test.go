package sealed

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
)

type object struct {
	Name  string            `json:"name"`
	Parts map[string]string `json:"parts,omitempty"`
}

// Any byte that is changed, in any way, is found, or changes nothing.
func TestFlips(t *testing.T) {
	want := object{"a name", map[string]string{"checksum": "of its own", "x": "y"}}
	text, err := Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var back object
	if err := Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, want) {
		t.Fatalf("%+v, %v", back, err)
	}
	found := 0
	for i := range text {
		for bit := range 8 {
			bad := bytes.Clone(text)
			bad[i] ^= 1 << bit
			var got object
			err := Unmarshal(bad, &got)
			if err == nil && !reflect.DeepEqual(got, want) {
				t.Errorf("bit %d of byte %d, %q: it is read as %+v", bit, i, bad, got)
			}
			if errors.Is(err, ErrDamaged) {
				found++
			}
		}
	}
	if found < 8*(len(text)-len(field)-10) {
		t.Errorf("%d flips of %d bytes were found", found, len(text))
	}
	for i := range text {
		if err := Unmarshal(text[:i], &object{}); err == nil && i < len(text) {
			t.Errorf("%d bytes of %d are read", i, len(text))
		}
	}
}

func TestOlder(t *testing.T) {
	var got object
	if err := Unmarshal([]byte("{\n \"name\": \"old\"\n}\n"), &got); err != nil || got.Name != "old" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, v := range []any{struct{}{}, 3, []int{1}} {
		if text, err := Marshal(v); err == nil {
			t.Errorf("%v: %s", v, text)
		}
	}
	if text, _ := Marshal(object{Name: "n"}); !strings.HasPrefix(string(text), `{"name":"n","checksum":"`) {
		t.Errorf("%s", text)
	}
}
