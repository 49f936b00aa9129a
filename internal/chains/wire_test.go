package chains_test

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"

	"github.com/ulisse-gp/ulisse/internal/chains"
	"github.com/ulisse-gp/ulisse/internal/latent"
)

// fill sets every field below v to a number or a text of its own, slices to three
// elements, and structs that v would recur in to nothing.
func fill(v reflect.Value, next *int) {
	*next++
	switch v.Kind() {
	case reflect.Pointer:
		if *next > 1000 {
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), next)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.Type() == reflect.TypeFor[*chains.Plan]() && v.Type() == reflect.TypeFor[chains.Plan]() {
				continue
			} else {
				fill(f, next)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 3, 3))
		for i := range 3 {
			fill(v.Index(i), next)
		}
	case reflect.String:
		v.SetString(string(rune('a' + *next%26)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*next))
	case reflect.Uint64:
		v.SetUint(uint64(*next))
	case reflect.Float64:
		v.SetFloat(float64(*next) + 0.1)
	default:
		panic(v.Kind())
	}
}

// Every field of every event and of all work comes back as it was: one that is
// added and forgotten on the wire is found.
func TestWire(t *testing.T) {
	kinds := reflect.TypeFor[chains.Event]()
	for i := range kinds.NumField() {
		if kinds.Field(i).Type.Kind() != reflect.Pointer {
			continue
		}
		e, next := chains.Event{Certificate: true}, 0
		fill(reflect.ValueOf(&e).Elem().Field(i), &next)
		if e.Stop != nil {
			e.Stop.Phase = "" // which Apply fills in
		}
		if e.Restart != nil {
			e.Restart = &chains.Restart{Elapsed: e.Restart.Elapsed} // so does it the rest
		}
		if e.Extend != nil {
			next := 0
			e.Extend.Certificate.Certificate = new(chains.Plan)
			fill(reflect.ValueOf(e.Extend.Certificate.Certificate).Elem(), &next)
		}
		b, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := chains.DecodeEvent(b)
		if diff := cmp.Diff(&e, got); err != nil || diff != "" {
			t.Errorf("%s: %v %s", kinds.Field(i).Name, err, diff)
		}
		again, err := got.Encode()
		if err != nil || string(again) != string(b) {
			t.Errorf("%s: other bytes the second time", kinds.Field(i).Name)
		}
	}
	works := reflect.TypeFor[chains.Work]()
	for i := range works.NumField() {
		if works.Field(i).Type.Kind() != reflect.Pointer {
			continue
		}
		w, next := chains.Work{Certificate: true}, 0
		fill(reflect.ValueOf(&w).Elem().Field(i), &next)
		got, err := chains.WorkOf(w.Wire())
		if diff := cmp.Diff(&w, got, cmpopts.IgnoreFields(chains.Staging{}, "Left")); err != nil || diff != "" {
			t.Errorf("%s: %v %s", works.Field(i).Name, err, diff)
		}
	}
	first := chains.Work{Prepare: &chains.Preparation{}}
	if got, err := chains.WorkOf(first.Wire()); err != nil || got.Prepare == nil || got.Prepare.From != nil {
		t.Errorf("the first preparation came back as %+v, %v", got, err)
	}
	var p chains.Prepared
	next := 0
	fill(reflect.ValueOf(&p).Elem(), &next)
	if diff := cmp.Diff(&p, chains.PreparedOf(p.Wire())); diff != "" {
		t.Error(diff)
	}
	if (*chains.Prepared)(nil).Wire() != nil || chains.PreparedOf(nil) != nil || (*chains.Plan)(nil).Wire() != nil || chains.PlanOf(nil) != nil {
		t.Error("nothing came back as something")
	}
}

// Bytes of another version, or of nobody, are an error.
func TestDecodeRefuses(t *testing.T) {
	unknown, err := proto.Marshal(&pb.RunEvent{Certificate: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{nil, unknown, []byte("nonsense"), {0xff}} {
		if e, err := chains.DecodeEvent(b); err == nil {
			t.Errorf("%q was read as %+v", b, e)
		}
	}
	if _, err := chains.WorkOf(&pb.RunWork{}); err == nil {
		t.Error("no work was taken for some")
	}
	if _, err := (&chains.Event{}).Encode(); err == nil {
		t.Error("an event without a change was encoded")
	}
}

// Whatever decodes encodes, and decodes to the same.
func FuzzDecodeEvent(f *testing.F) {
	for _, e := range []chains.Event{
		{Stop: &chains.Stop{Reason: chains.Converged, Draws: 3}},
		{Checkpoint: &chains.Checkpoint{Chain: 1, State: chains.State{Iter: 2, Psi: []float64{1, 2}}, Draws: [][]float64{{1, 2}, {3, 4}}}},
		{Checkpoint: &chains.Checkpoint{Chain: 1, State: chains.State{Iter: 2, Psi: []float64{1, 2}, Latent: latent.RefOf([]byte("vectors"))}}},
		{Prepared: &chains.Prepared{Psi: []float64{1}, Starts: [][]float64{{1}, {2}}, Cov: []float64{1}}},
	} {
		b, err := e.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := chains.DecodeEvent(b)
		if err != nil {
			return
		}
		again, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := chains.DecodeEvent(again)
		if diff := cmp.Diff(e, back, cmpopts.EquateNaNs(), cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatal(err, diff)
		}
	})
}
