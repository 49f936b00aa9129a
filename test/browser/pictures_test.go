package browser

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/ulisse-gp/ulisse/internal/atomicfile"
)

// TestPictures draws the pictures of docs/dashboard.md into the folder ULISSE_PICTURES, of the job
// ULISSE_JOB on the dashboard at ULISSE_DASHBOARD: hack/pictures.sh.
func TestPictures(t *testing.T) {
	folder, url, job := os.Getenv("ULISSE_PICTURES"), os.Getenv("ULISSE_DASHBOARD"), os.Getenv("ULISSE_JOB")
	if folder == "" {
		t.Skip("pictures are drawn by hack/pictures.sh")
	}
	const some = "?param=0&param=8&param=9" // sigma, the rate of an input, lambda
	b := open(t, chromium(t), url)
	for _, p := range []struct {
		name, path, scheme string
		width, height      int64
		prepare            func()
	}{
		{"job", "/jobs/" + job + some, "light", 1280, 1500, nil},
		{"dark", "/jobs/" + job + some, "dark", 1280, 1500, nil},
		{"phone", "/jobs/" + job + some, "light", 390, 1000, nil},
		{"jobs", "/jobs", "light", 1280, 490, nil},
		{"workers", "/workers", "light", 1280, 1060, nil},
		{"cluster", "/cluster", "light", 1280, 520, nil},
		{"submit", "/submit?job=" + job, "light", 1280, 900, func() {
			b.do("a mistake", chromedp.Evaluate(`(() => { const s = document.getElementById("spec"); s.value = s.value.replace("kernel: ", "kernel: matern72 # "); s.dispatchEvent(new Event("input")); })()`, nil))
			b.holds("it is told", `/matern72/.test(document.getElementById("mistakes").innerText)`)
			b.do("going there", press("#mistakes button"), chromedp.Evaluate(`scrollTo(0, 0)`, nil))
		}},
	} {
		var picture []byte
		b.do(p.name, chromedp.EmulateViewport(p.width, p.height), emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: p.scheme}}),
			chromedp.Navigate(url+p.path), chromedp.WaitVisible("h1"))
		if p.prepare != nil {
			p.prepare()
		}
		b.holds("all of it", `[...document.images].filter(i => i.getBoundingClientRect().top < innerHeight).every(i => i.complete && i.naturalWidth > 0) && !/static|reconnecting/.test(document.getElementById("live")?.textContent)`)
		b.do("the picture", chromedp.Sleep(time.Second), chromedp.CaptureScreenshot(&picture)) // a stream may be about to change the page
		picture, err := shrink(picture)
		if err != nil {
			t.Fatal(err)
		}
		if err := atomicfile.WriteBytes(filepath.Join(folder, fmt.Sprintf("dashboard-%s.png", p.name)), 0o644, picture); err != nil {
			t.Fatal(err)
		}
	}
	b.clean()
}

// shrink returns a picture in its 256 most frequent colours, which takes a quarter of the bytes.
func shrink(text []byte) ([]byte, error) {
	from, err := png.Decode(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	box := from.Bounds()
	count := map[color.RGBA]int{}
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(from.At(x, y)).(color.RGBA) }
	for y := range box.Dy() {
		for x := range box.Dx() {
			count[at(x, y)]++
		}
	}
	var palette color.Palette
	for _, c := range slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int { return count[b] - count[a] }) {
		if palette = append(palette, c); len(palette) == 256 {
			break
		}
	}
	nearest := map[color.RGBA]uint8{}
	for c := range count {
		nearest[c] = uint8(palette.Index(c))
	}
	to := image.NewPaletted(box, palette)
	for y := range box.Dy() {
		for x := range box.Dx() {
			to.SetColorIndex(x, y, nearest[at(x, y)])
		}
	}
	var out bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to)
	return out.Bytes(), err
}
