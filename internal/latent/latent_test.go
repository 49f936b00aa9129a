package latent

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The bytes of a small state are written out: they are on disks.
func TestEncodingIsPinned(t *testing.T) {
	got := Encode([][]float64{{1, math.Copysign(0, -1)}, {-2.5, math.Float64frombits(1)}})
	want, err := hex.DecodeString("756c6174656e7431" + "0200000000000000" + "0200000000000000" +
		"000000000000f03f" + "0000000000000080" + "00000000000004c0" + "0100000000000000")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
	sum := sha256.Sum256(want)
	if r := RefOf(got); r.SHA256 != hex.EncodeToString(sum[:]) || r.Size != 56 || !r.Sane(Size(2, 2)) {
		t.Errorf("%+v, size %d", r, Size(2, 2))
	}
}

// Every bit of every number comes back, those of NaNs too.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, n := rapid.IntRange(1, 4).Draw(t, "k"), rapid.IntRange(0, 50).Draw(t, "n")
		v := New(k, n)
		for i := range v {
			for j := range v[i] {
				v[i][j] = math.Float64frombits(rapid.Uint64().Draw(t, "bits"))
			}
		}
		b := Encode(v)
		if int64(len(b)) != Size(k, n) {
			t.Fatalf("%d bytes, and Size says %d", len(b), Size(k, n))
		}
		got, err := Decode(b, k, n)
		if err != nil {
			t.Fatal(err)
		}
		for i := range v {
			for j := range v[i] {
				if math.Float64bits(got[i][j]) != math.Float64bits(v[i][j]) {
					t.Fatalf("number %d of vector %d: %x, not %x", j, i, math.Float64bits(got[i][j]), math.Float64bits(v[i][j]))
				}
			}
		}
	})
}

func TestRefsThatAreNone(t *testing.T) {
	good := RefOf(Encode(New(1, 3)))
	for what, c := range map[string]struct {
		ref  Ref
		size int64
		want bool
	}{
		"good":                {good, Size(1, 3), true},
		"none":                {Ref{}, 0, true},
		"another size":        {good, Size(1, 4), false},
		"where none are":      {good, 0, false},
		"none where some are": {Ref{}, Size(1, 3), false},
		"upper case":          {Ref{strings.ToUpper(good.SHA256), good.Size}, good.Size, false},
		"short":               {Ref{good.SHA256[2:], good.Size}, good.Size, false},
		"a path":              {Ref{"../" + good.SHA256[3:], good.Size}, good.Size, false},
	} {
		if got := c.ref.Sane(c.size); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// Whatever the bytes are, they are refused or are the one encoding of what they
// are read as; nothing is allocated for what they only claim.
func FuzzDecode(f *testing.F) {
	f.Add(Encode(New(2, 3)), 2, 3)
	f.Add(Encode(New(1, 0)), 1, 0)
	f.Add([]byte(magic), 1, 1<<40)
	f.Add([]byte(magic+"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), 1, 1)
	f.Fuzz(func(t *testing.T, b []byte, k, n int) {
		if k < 1 || k > 16 || n < 0 || n > 1<<40 { // a method's own numbers
			return
		}
		v, err := Decode(b, k, n)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(Encode(v), b) {
			t.Fatal("two encodings of the same vectors")
		}
	})
}
