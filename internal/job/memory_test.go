package job

import "testing"

func TestMemory(t *testing.T) {
	for _, c := range []struct {
		text  string
		want  Memory
		write string
	}{
		{"auto", Memory{}, "auto"},
		{"off", Memory{Set: true}, "off"},
		{"4GiB", Memory{true, 4 << 30}, "4GiB"},
		{"1.5 GiB", Memory{true, 3 << 29}, "1536MiB"},
		{"1000B", Memory{true, 1000}, "1000B"},
		{"2048TiB", Memory{true, 1 << 51}, "2048TiB"},
	} {
		m, err := ParseMemory(c.text)
		if err != nil || m != c.want || m.String() != c.write {
			t.Errorf("%s: %+v, %v, written %s", c.text, m, err, m)
		}
		if back, err := ParseMemory(m.String()); err != nil || back != m {
			t.Errorf("%s: read back as %+v, %v", c.text, back, err)
		}
	}
	for _, bad := range []string{"", "4", "GiB", "-1GiB", "0MiB", "0.1B", "4GB", "nanGiB", "1e30TiB", "x MiB"} {
		if m, err := ParseMemory(bad); err == nil {
			t.Errorf("%q is read as %v", bad, m)
		}
	}
}
