package tile

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"testing"

	"github.com/ulisse-gp/ulisse/internal/kernel"
)

// The kernels of every instruction set that this machine has are tested alike.

func TestEveryKernelIsThere(t *testing.T) {
	if n := len(kernel.Profiles()); n != kernel.NumProfiles {
		t.Fatalf("%d profiles are listed, %d are named", n, kernel.NumProfiles)
	}
	// What leaves ask for: of a Circular or a Mismatch there are no rates, and only these have a shape that
	// is a parameter.
	none := map[string][]kernel.Family{
		"ScaledDeriv": {kernel.Circular, kernel.Mismatch}, "Deriv": {kernel.Mismatch},
		"ShapeDeriv": {kernel.RBF, kernel.Matern12, kernel.Matern32, kernel.Matern52, kernel.Wendland, kernel.Wendland0, kernel.Wendland2, kernel.Circular},
	}
	for _, isa := range Available() {
		for _, table := range []any{For[float64](isa), For[float32](isa), FormsFor(isa)} {
			v := reflect.ValueOf(table).Elem()
			for i := range v.NumField() {
				field, name := v.Field(i), v.Type().Field(i).Name
				if field.Kind() == reflect.Func && field.IsNil() {
					t.Errorf("%v has no %s in %T", isa, name, table)
				}
				for _, f := range kernel.Profiles() {
					if field.Kind() == reflect.Array && field.Index(int(f)).IsNil() && !slices.Contains(none[name], f) {
						t.Errorf("%v has no %s of %v in %T", isa, name, f, table)
					}
				}
			}
		}
	}
}

// guarded is a slice between NaN guards: what is read beyond its ends spoils
// the result, what is written there is found.
type guarded[T Real] struct {
	all, in []T
	before  []T // contents of an argument that is only read
}

const guard = 37 // odd, so that vectors are not aligned

func newGuarded[T Real](n int, fill func(i int) float64) *guarded[T] {
	g := &guarded[T]{all: make([]T, n+2*guard)}
	nan := T(math.NaN())
	for i := range g.all {
		g.all[i] = nan
	}
	g.in = g.all[guard : guard+n : guard+n]
	for i := range g.in {
		g.in[i] = T(fill(i))
	}
	g.before = slices.Clone(g.in)
	return g
}

func (g *guarded[T]) checkGuards(t *testing.T, name string) {
	t.Helper()
	for i, x := range g.all {
		if (i < guard || i >= len(g.all)-guard) && x == x {
			t.Errorf("%s: wrote out of bounds at %d of %d", name, i-guard, len(g.in))
			return
		}
	}
}

func (g *guarded[T]) checkUnchanged(t *testing.T, name string) {
	t.Helper()
	g.checkGuards(t, name)
	for i, x := range g.in {
		if x != g.before[i] {
			t.Errorf("%s: changed at %d", name, i)
			return
		}
	}
}

func normal(rnd *rand.Rand, scale float64) func(int) float64 {
	return func(int) float64 { return scale * rnd.NormFloat64() }
}

func zero(int) float64 { return 0 }

// epsilon is the rounding error of T.
func epsilon[T Real]() float64 {
	if _, single := any(T(0)).(float32); single {
		return 0x1p-24
	}
	return 0x1p-53
}

// strips runs a test for every instruction set, input dimension and number of
// panels; for fewer in short runs, under the race detector say.
func strips(t *testing.T, test func(t *testing.T, isa ISA, d, panels int)) {
	dims, counts := []int{1, 2, 3, 8, 20, 200}, []int{1, 2, 5, 8}
	if testing.Short() {
		dims, counts = []int{1, 3, 20}, []int{1, 5}
	}
	for _, isa := range Available() {
		for _, d := range dims {
			for _, panels := range counts {
				t.Run(fmt.Sprintf("%v/d=%d/panels=%d", isa, d, panels), func(t *testing.T) {
					test(t, isa, d, panels)
				})
			}
		}
	}
}

// profile is a profile with a shape.
type profile struct {
	kernel.Family
	shape float64
}

// profilesOf returns all profiles, with some shapes, over d inputs.
func profilesOf(d int) (all []profile) {
	for _, f := range kernel.Families() {
		all = append(all, profile{f, math.NaN()}) // which they do not look at
	}
	for _, a := range []float64{1e-3, 0.3, 2, 40, 1e5} {
		all = append(all, profile{kernel.Rational, a})
	}
	return append(all, profile{kernel.Wendland0, float64(d/2 + 1)}, profile{kernel.Wendland, float64(d/2 + 3)}, profile{kernel.Wendland2, float64(d/2 + 5)}, profile{kernel.Circular, math.NaN()}, profile{kernel.Mismatch, 0.01}, profile{kernel.Mismatch, 0.7})
}

// inputsOf returns inputs that a profile is for, packed for a strip.
func inputsOf[T Real](f kernel.Family, d, panels int, scale float64) (zi, zj *guarded[T], w func(r, j int) float64) {
	zi, zj, w = inputs[T](d, panels, scale)
	if f != kernel.Mismatch {
		return zi, zj, w
	}
	for _, z := range []*guarded[T]{zi, zj} {
		for i, x := range z.in {
			z.in[i] = T(math.Round(3 * math.Sqrt(float64(d)) * float64(x)))
		}
		z.before = slices.Clone(z.in)
	}
	return zi, zj, func(r, j int) (differ float64) {
		for k := range d {
			if zi.in[k*Panel+r] != zj.in[(j/Panel*d+k)*Panel+j%Panel] {
				differ++
			}
		}
		return differ
	}
}

// inputs returns packed inputs for a strip, some rows and columns equal, and
// the distance of each row and column.
func inputs[T Real](d, panels int, scale float64) (zi, zj *guarded[T], w func(r, j int) float64) {
	rnd := rand.New(rand.NewPCG(uint64(d), uint64(panels)))
	scale /= math.Sqrt(float64(d))
	zi = newGuarded[T]((d-1)*Panel+Strip, normal(rnd, scale))
	zj = newGuarded[T](d*panels*Panel, normal(rnd, scale))
	for r := range 3 { // column 5r of panel 0 is row r
		for k := range d {
			zj.in[k*Panel+5*r] = zi.in[k*Panel+r]
		}
	}
	zj.before = slices.Clone(zj.in)
	return zi, zj, func(r, j int) float64 {
		var w float64
		for k := range d {
			t := float64(zi.in[k*Panel+r]) - float64(zj.in[(j/Panel*d+k)*Panel+j%Panel])
			w += t * t
		}
		return w
	}
}

// exact returns g, g', u·g' and the derivative by the logarithm of the shape at the squared
// distance w, by math.Exp.
func exact(f profile, w float64) (g, dg, udg, da float64) {
	u := w
	if f.Family == kernel.RBF {
		u = w * math.Ln2
	} else if f.Family < kernel.NumFamilies {
		a := math.Sqrt(w) * math.Ln2
		u = a * a / f.Rate()
	}
	g, dg, da = f.Shaped(u, f.shape)
	return g, dg, u * dg, da
}

// bound returns what an element may be off, in units of the rounding error, at the squared distance w
// over d inputs, whose sum has a relative error of d/2 of them.
func bound(f profile, d int, w float64) float64 {
	g, dg, _, _ := exact(f, w)
	switch f.Family {
	case kernel.Rational: // a few of log g, and w·g' of each of the distance's
		return 15*g + 8*g*f.shape*math.Log1p(w/f.shape) + (4+float64(d))*w*math.Abs(dg)
	case kernel.Wendland2: // of each factor, and of 1 − r, which cancels
		return (8+f.shape)*g + (8+float64(d))*(f.shape+1)*(f.shape+1)*math.Abs(dg)*(w+math.Sqrt(w))
	case kernel.Wendland, kernel.Wendland0:
		return (8+f.shape)*g + (8+float64(d))*(f.shape+1)*math.Abs(dg)*(w+math.Sqrt(w))
	case kernel.Circular:
		return 2 + (4+float64(d)/2)*w
	case kernel.Mismatch: // w is exact
		return g * (15 + 4*f.shape*w)
	}
	return g * (15 + (4+float64(d)/2)*w)
}

func testEval[T Real](t *testing.T) {
	strips(t, func(t *testing.T, isa ISA, d, panels int) {
		for _, f := range profilesOf(d) {
			for _, scale := range []float64{1, 6} {
				zi, zj, dist := inputsOf[T](f.Family, d, panels, scale)
				k := newGuarded[T]((Strip-1)*Size+panels*Panel, zero)
				For[T](isa).Eval[f.Family](k.in, zi.in, zj.in, d, panels, T(f.shape))
				k.checkGuards(t, "k")
				zi.checkUnchanged(t, "zi")
				zj.checkUnchanged(t, "zj")
				f.shape = float64(T(f.shape))
				for r := range Strip {
					for j := range Size {
						if j >= panels*Panel {
							if r < Strip-1 && k.in[r*Size+j] != 0 {
								t.Fatalf("%v: wrote k[%d,%d]", f, r, j)
							}
							continue
						}
						w := dist(r, j)
						want, _, _, _ := exact(f, w)
						got := float64(k.in[r*Size+j])
						if e := math.Abs(got - want); !(e <= epsilon[T]()*bound(f, d, w)+0x1p-126) || w == 0 && got != 1 {
							t.Fatalf("%v: k[%d,%d] at w=%v is %v, want %v, error %.3g of %.3g", f, r, j, w, got, want, e, epsilon[T]()*bound(f, d, w))
						}
					}
				}
			}
		}
	})
}

func TestEval(t *testing.T) {
	t.Run("float64", testEval[float64])
	t.Run("float32", testEval[float32])
}

func TestDeriv(t *testing.T) {
	strips(t, func(t *testing.T, isa ISA, d, panels int) {
		for _, f := range profilesOf(d) {
			zi, zj, dist := inputsOf[float64](f.Family, d, panels, 1)
			n := (Strip-1)*Size + panels*Panel
			k, want := newGuarded[float64](n, zero), newGuarded[float64](n, zero)
			For[float64](isa).Eval[f.Family](want.in, zi.in, zj.in, d, panels, f.shape)
			strips := map[string]*guarded[float64]{}
			forms := FormsFor(isa)
			for name, deriv := range map[string]func(k, h, zi, zj []float64, d, panels int, shape float64){
				"Deriv": forms.Deriv[f.Family], "ScaledDeriv": forms.ScaledDeriv[f.Family], "ShapeDeriv": forms.ShapeDeriv[f.Family],
			} {
				if deriv == nil {
					continue
				}
				h := newGuarded[float64](n, zero)
				deriv(k.in, h.in, zi.in, zj.in, d, panels, f.shape)
				k.checkGuards(t, "k")
				h.checkGuards(t, "h")
				if !slices.Equal(k.in, want.in) {
					t.Errorf("%v: %s and Eval differ", f, name)
				}
				strips[name] = h
			}
			for r := range Strip {
				for j := range panels * Panel {
					checkDerivs(t, f, d, dist(r, j), func(name string) (float64, bool) {
						h, ok := strips[name]
						if !ok {
							return 0, false
						}
						return h.in[r*Size+j], true
					})
				}
			}
		}
	})
}

// checkDerivs compares the derivatives at the squared distance w.
func checkDerivs(t *testing.T, f profile, d int, w float64, at func(name string) (float64, bool)) {
	t.Helper()
	_, dg, udg, da := exact(f, w)
	tol := 0x1p-53 * (16 + (4+float64(d)/2)*w)
	shaped := 0.0 // the derivative by the shape cancels, and the ones of Wendland's 1−r do
	switch f.Family {
	case kernel.Rational:
		tol = 0x1p-53 * (32 + 2*float64(d) + 8*f.shape*math.Log1p(w/f.shape))
		shaped = 0x1p-53 * (32 + 2*float64(d)) * w * math.Abs(dg)
	case kernel.Wendland, kernel.Wendland0, kernel.Wendland2:
		r := map[kernel.Family]float64{kernel.Wendland0: 2 / (f.shape * f.shape), kernel.Wendland: 2 / (f.shape * (f.shape + 1)),
			kernel.Wendland2: 6 / ((f.shape + 1) * (f.shape + 2))}[f.Family]
		tol = 0x1p-53 * (16 + f.shape*(2+(8+float64(d))/max(1e-30, 1-math.Sqrt(r*w))))
	}
	if got, ok := at("Deriv"); ok && w > 0 {
		if !(math.Abs(got-dg) <= tol*math.Abs(dg)) {
			t.Fatalf("%v: g' at w=%v is %v, want %v", f, w, got, dg)
		}
	} else if ok && got*w != 0 {
		t.Fatalf("%v: g'·0 is %v", f, got*w)
	}
	if got, ok := at("ScaledDeriv"); ok && !(math.Abs(got-udg) <= tol*math.Abs(udg)) {
		t.Fatalf("%v: u·g' at w=%v is %v, want %v", f, w, got, udg)
	}
	if got, ok := at("ShapeDeriv"); ok && !(math.Abs(got-da) <= tol*math.Abs(da)+shaped) {
		t.Fatalf("%v: the derivative by the shape at w=%v is %v, want %v", f, w, got, da)
	}
}

// At huge distances the covariance underflows to zero or nearly so, without
// overflow or NaN on the way.
func TestEvalOfExtremeDistances(t *testing.T) {
	distances := []float64{0, 5e-324, 1e-200, 1e-20, 1, 20, 31, 32, 33, 100, 1e3, 1e4, 1e10, 1e17}
	for _, isa := range Available() {
		for _, f := range profilesOf(1) {
			if f.Family == kernel.Circular || f.Family == kernel.Mismatch {
				continue // whose inputs are bounded, or whole numbers
			}
			var zi, zj, k, h [Size * Strip]float64
			var zi32, zj32, k32 [Size * Strip]float32
			for j, x := range append(distances, 1e50, 1e100) {
				zj[j], zj32[j] = x, float32(min(x, 1e17))
			}
			check := func(what string, j int, got, want, tol float64) {
				t.Helper()
				if !(math.Abs(got-want) <= tol) {
					t.Errorf("%v %v: %s at distance %v is %v, want %v", isa, f, what, zj[j], got, want)
				}
			}
			For[float64](isa).Eval[f.Family](k[:], zi[:], zj[:], 1, 1, f.shape)
			For[float32](isa).Eval[f.Family](k32[:], zi32[:], zj32[:], 1, 1, float32(f.shape))
			for j := range Panel {
				want, _, _, _ := exact(f, zj[j]*zj[j])
				check("value", j, k[j], want, 1e-13*want+0x1p-1022)
				want, _, _, _ = exact(f, float64(zj32[j])*float64(zj32[j]))
				check("single value", j, float64(k32[j]), want, 1e-4*want+0x1p-126)
			}
			FormsFor(isa).ScaledDeriv[f.Family](k[:], h[:], zi[:], zj[:], 1, 1, f.shape)
			for j := range Panel {
				_, _, want, _ := exact(f, zj[j]*zj[j])
				if math.IsInf(want, 0) || math.IsNaN(want) {
					want = 0
				}
				check("u·g'", j, h[j], want, 1e-11*math.Abs(want)+1e-300)
			}
			FormsFor(isa).Deriv[f.Family](k[:], h[:], zi[:], zj[:], 1, 1, f.shape)
			for j := range Panel {
				_, want, _, _ := exact(f, zj[j]*zj[j])
				if zj[j] > 1e-100 {
					check("g'", j, h[j], want, 1e-13*math.Abs(want)+1e-300)
				}
			}
		}
	}
}

func testDirect[T Real](t *testing.T) {
	for _, isa := range Available() {
		for _, s := range []int{1, 2, 3, 4, 5, 17, 64} {
			for _, panels := range []int{1, 3, 8} {
				rnd := rand.New(rand.NewPCG(uint64(s), uint64(panels)))
				ldy := Strip + 3
				y := newGuarded[float64]((s-1)*ldy+Strip, normal(rnd, 1))
				k := newGuarded[T]((Strip-1)*Size+panels*Panel, normal(rnd, 1))
				v := newGuarded[T]((s-1)*Size+panels*Panel, normal(rnd, 1))
				kern := For[T](isa)
				kern.Direct(y.in, ldy, k.in, k.in, v.in, s, panels)
				name := fmt.Sprintf("%v/s=%d/panels=%d", isa, s, panels)
				y.checkGuards(t, name)
				k.checkUnchanged(t, name)
				v.checkUnchanged(t, name)
				for c := range s {
					alone := slices.Clone(y.before[c*ldy:][:Strip])
					kern.Direct(alone, 1, k.in, nil, v.in[c*Size:], 1, panels)
					for r := range ldy {
						if r >= Strip {
							if c < s-1 && y.in[c*ldy+r] != y.before[c*ldy+r] {
								t.Fatalf("%s: wrote row %d", name, r)
							}
							continue
						}
						want, abs := y.before[c*ldy+r], 0.0
						for j := range panels * Panel {
							x := float64(k.in[r*Size+j]) * float64(v.in[c*Size+j])
							want += x
							abs += math.Abs(x)
						}
						got := y.in[c*ldy+r]
						if e := math.Abs(got - want); !(e <= 64*epsilon[T]()*abs) {
							t.Fatalf("%s: (%d,%d) is %v, want %v", name, r, c, got, want)
						}
						if got != alone[r] {
							t.Fatalf("%s: (%d,%d) is %v among others, %v alone", name, r, c, got, alone[r])
						}
					}
				}
			}
		}
	}
}

func TestDirect(t *testing.T) {
	t.Run("float64", testDirect[float64])
	t.Run("float32", testDirect[float32])
}

func testTrans[T Real](t *testing.T) {
	for _, isa := range Available() {
		for _, s := range []int{1, 2, 3, 4, 5, 17, 64} {
			for _, panels := range []int{1, 3, 8} {
				rnd := rand.New(rand.NewPCG(uint64(s), uint64(panels)))
				ldv := Strip + 5
				n := panels * Panel
				y := newGuarded[T]((s-1)*Size+n, normal(rnd, 1))
				k := newGuarded[T]((Strip-1)*Size+n, normal(rnd, 1))
				v := newGuarded[T]((s-1)*ldv+Strip, normal(rnd, 1))
				kern := For[T](isa)
				kern.Trans(y.in, k.in, k.in, v.in, ldv, s, panels)
				name := fmt.Sprintf("%v/s=%d/panels=%d", isa, s, panels)
				y.checkGuards(t, name)
				k.checkUnchanged(t, name)
				v.checkUnchanged(t, name)
				for c := range s {
					alone := slices.Clone(y.before[c*Size:][:n])
					kern.Trans(alone, k.in, nil, v.in[c*ldv:], ldv, 1, panels)
					for j := range n {
						want := float64(y.before[c*Size+j])
						abs := math.Abs(want)
						for r := range Strip {
							x := float64(k.in[r*Size+j]) * float64(v.in[c*ldv+r])
							want += x
							abs += math.Abs(x)
						}
						got := y.in[c*Size+j]
						if e := math.Abs(float64(got) - want); !(e <= 16*epsilon[T]()*abs) {
							t.Fatalf("%s: (%d,%d) is %v, want %v", name, j, c, got, want)
						}
						if got != alone[j] {
							t.Fatalf("%s: (%d,%d) is %v among others, %v alone", name, j, c, got, alone[j])
						}
					}
					for j := n; j < Size && c < s-1; j++ {
						if y.in[c*Size+j] != y.before[c*Size+j] {
							t.Fatalf("%s: wrote column %d", name, j)
						}
					}
				}
			}
		}
	}
}

func TestTrans(t *testing.T) {
	t.Run("float64", testTrans[float64])
	t.Run("float32", testTrans[float32])
}

func testAdd[T Real](t *testing.T) {
	for _, isa := range Available() {
		for _, n := range []int{0, Panel, 5 * Panel} {
			rnd := rand.New(rand.NewPCG(1, uint64(n)))
			y, x := newGuarded[float64](n, normal(rnd, 1)), newGuarded[T](n, normal(rnd, 1))
			For[T](isa).Add(y.in, x.in, n)
			y.checkGuards(t, "y")
			x.checkUnchanged(t, "x")
			for i, got := range y.in {
				if want := y.before[i] + float64(x.in[i]); got != want {
					t.Fatalf("%v: element %d is %v, want %v", isa, i, got, want)
				}
			}
		}
	}
}

func TestAdd(t *testing.T) {
	t.Run("float64", testAdd[float64])
	t.Run("float32", testAdd[float32])
}

// Multiply and AddScaled touch the first n elements alone, in place too.
func TestElementwise(t *testing.T) {
	t.Run("float64", func(t *testing.T) { testElementwise[float64](t, 1e-15) })
	t.Run("float32", func(t *testing.T) { testElementwise[float32](t, 1e-6) })
}

func testElementwise[T Real](t *testing.T, eps float64) {
	for _, isa := range Available() {
		for _, n := range []int{0, Panel, 3 * Panel, Strip * Size} {
			name := fmt.Sprintf("%v/n=%d", isa, n)
			rnd := rand.New(rand.NewPCG(uint64(n), 1))
			a, b, dst := newGuarded[T](n, normal(rnd, 1)), newGuarded[T](n, normal(rnd, 1)), newGuarded[T](n, normal(rnd, 1))
			y := newGuarded[T](n, normal(rnd, 1))
			kern, c := For[T](isa), T(0.7)
			kern.Multiply(dst.in, a.in, b.in, n)
			kern.AddScaled(y.in, a.in, c, n)
			for i := range n {
				if want := a.in[i] * b.in[i]; dst.in[i] != want {
					t.Fatalf("%s: product %d is %v, want %v", name, i, dst.in[i], want)
				}
				want := float64(y.before[i]) + float64(c)*float64(a.in[i])
				if abs := math.Abs(float64(y.before[i])) + math.Abs(float64(a.in[i])); math.Abs(float64(y.in[i])-want) > eps*abs {
					t.Fatalf("%s: sum %d is %v, want %v", name, i, y.in[i], want)
				}
			}
			kern.Multiply(dst.in, dst.in, b.in, n)
			for i := range n {
				if want := a.in[i] * b.in[i] * b.in[i]; dst.in[i] != want {
					t.Fatalf("%s: product in place %d is %v, want %v", name, i, dst.in[i], want)
				}
			}
			dst.checkGuards(t, name)
			y.checkGuards(t, name)
			a.checkUnchanged(t, name)
			b.checkUnchanged(t, name)
		}
	}
}

func TestForms(t *testing.T) {
	for _, isa := range Available() {
		for _, s := range []int{1, 2, 5, 17} {
			for _, panels := range []int{1, 3, 8} {
				const d = 3
				rnd := rand.New(rand.NewPCG(uint64(s), uint64(panels)))
				n := panels * Panel
				strip := func() *guarded[float64] { return newGuarded[float64]((Strip-1)*Size+n, normal(rnd, 1)) }
				ld := s + 2
				rows := func() *guarded[float64] { return newGuarded[float64]((s-1)*Panel+Strip, normal(rnd, 1)) }
				cols := func() *guarded[float64] { return newGuarded[float64](((panels-1)*ld+s)*Panel, normal(rnd, 1)) }
				k, h, m, ui, vi, uj, vj := strip(), strip(), strip(), rows(), rows(), cols(), cols()
				sums, first := newGuarded[float64](2, zero), newGuarded[float64](1, zero)
				kern := FormsFor(isa)
				kern.Sums(sums.in, k.in, h.in, ui.in, vi.in, uj.in, vj.in, s, ld, panels)
				kern.Weigh(first.in, m.in, k.in, h.in, ui.in, vi.in, uj.in, vj.in, s, ld, panels)
				zi, zj, _ := inputs[float64](d, panels, 1)
				spread := newGuarded[float64](d, zero)
				kern.Spread(spread.in, m.in, zi.in, zj.in, d, panels)

				name := fmt.Sprintf("%v/s=%d/panels=%d", isa, s, panels)
				for _, g := range []*guarded[float64]{sums, first, m, spread} {
					g.checkGuards(t, name)
				}
				for _, g := range []*guarded[float64]{k, h, ui, vi, uj, vj, zi, zj} {
					g.checkUnchanged(t, name)
				}
				close := func(what string, got, want, abs float64) {
					t.Helper()
					if !(math.Abs(got-want) <= 1e-14*abs) {
						t.Errorf("%s: %s is %v, want %v", name, what, got, want)
					}
				}
				var want, abs [2 + d]float64
				for r := range Strip {
					for j := range n {
						var w, wabs float64
						for c := range s {
							col := (j/Panel*ld+c)*Panel + j%Panel
							x, y := ui.in[c*Panel+r]*vj.in[col], vi.in[c*Panel+r]*uj.in[col]
							w += x + y
							wabs += math.Abs(x) + math.Abs(y)
						}
						at := r*Size + j
						close("m", m.in[at], w*h.in[at], wabs*math.Abs(h.in[at]))
						add := func(i int, factor float64) {
							want[i] += w * factor
							abs[i] += wabs * math.Abs(factor)
						}
						add(0, k.in[at])
						add(1, h.in[at])
						for i := range d {
							t := zi.in[i*Panel+r] - zj.in[(j/Panel*d+i)*Panel+j%Panel]
							add(2+i, h.in[at]*t*t)
						}
					}
				}
				close("Σ w·k", sums.in[0], want[0], abs[0])
				close("Σ w·h", sums.in[1], want[1], abs[1])
				close("Σ w·k", first.in[0], want[0], abs[0])
				for i := range d {
					close("spread", spread.in[i], want[2+i], abs[2+i])
				}
			}
		}
	}
}

func TestPortableExp2(t *testing.T) {
	for i := range 200_000 {
		x := -float64(i) * 0.00511
		want := math.Exp2(x)
		if x < -1022 {
			want = 0
		}
		if got := exp2(x); math.Abs(got-want) > 1.5e-15*want {
			t.Fatalf("2^%v is %v, want %v", x, got, want)
		}
	}
	if exp2(0) != 1 || exp2(-1e300) != 0 {
		t.Errorf("2^0 is %v, 2^-1e300 is %v", exp2(0), exp2(-1e300))
	}
}

func TestChooseISA(t *testing.T) {
	old := []ISA{Portable, AVX2}
	for _, c := range []struct {
		name string
		want ISA
		err  string
	}{
		{"", AVX2, ""},
		{"portable", Portable, ""},
		{"avx2", AVX2, ""},
		{"avx512", 0, "ULISSE_ISA=avx512: this machine only has portable, avx2"},
		{"neon", 0, "ULISSE_ISA=neon: this machine only has portable, avx2"},
		{"sse9", 0, `ULISSE_ISA="sse9" is not one of portable, avx2, avx512, neon`},
	} {
		got, err := choose(c.name, old)
		if err == nil && (got != c.want || c.err != "") || err != nil && err.Error() != c.err {
			t.Errorf("%q: got %v, %v", c.name, got, err)
		}
	}
}

// An instruction set's file must not use registers of a later one, which the
// assembler would accept.
func TestAVX2UsesNoAVX512(t *testing.T) {
	text, err := os.ReadFile("avx2_amd64.s")
	if err != nil {
		t.Fatal(err)
	}
	if bad := regexp.MustCompile(`\b(Y(1[6-9]|2\d|3[01])|Z\d+|K[0-7])\b`).Find(text); bad != nil {
		t.Errorf("register %s", bad)
	}
}
