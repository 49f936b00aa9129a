package version

import (
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// The rounding names the architecture, and what differs between builds for one.
func TestRounding(t *testing.T) {
	defer func(a string) { Arithmetic = a }(Arithmetic)
	Arithmetic = "1"
	first := Rounding()
	if !strings.HasPrefix(first, runtime.GOARCH) || strings.Contains(first, "/") {
		t.Errorf("the rounding of the first arithmetic on %s is %q", runtime.GOARCH, first)
	}
	if Arithmetic = "2"; Rounding() != first+"/2" {
		t.Errorf("the rounding of the second arithmetic is %q", Rounding())
	}
	if math.FMA(third, 3, -1) == 0 {
		t.Error("1/3 times 3 is exact: it does not tell whether products are fused")
	}
}

// A build for GOAMD64=v3 fuses, one without gonum's assembly says so.
func TestRoundingOfOtherBuilds(t *testing.T) {
	if os.Getenv("ULISSE_BUILDS") == "" {
		t.Skip("compiles the standard library anew: ULISSE_BUILDS=1 for that")
	}
	if runtime.GOARCH != "amd64" || strings.Contains(Rounding(), "nofma") {
		t.Skip("for amd64 with fused multiply-add")
	}
	for _, c := range []struct{ env, tags, want string }{
		{"GOAMD64=v1", "", "amd64"}, {"GOAMD64=v3", "", "amd64-v3"}, {"GOAMD64=v1", "noasm", "amd64-noasm"},
	} {
		cmd := exec.Command("go", "test", "-count=1", "-v", "-tags", c.tags, "-run", "^TestTellRounding$", ".")
		cmd.Env = append(cmd.Environ(), c.env)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "rounding="+c.want+"\n") {
			t.Errorf("%s -tags %s: want %s, got %v\n%s", c.env, c.tags, c.want, err, out)
		}
	}
}

func TestTellRounding(t *testing.T) {
	defer func(a string) { Arithmetic = a }(Arithmetic)
	Arithmetic = "1"
	t.Logf("rounding=%s", Rounding())
}
