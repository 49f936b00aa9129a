package plots

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"image/color"
	"io"
	"strings"

	"gonum.org/v1/plot/vg/vgsvg"
)

// tone is a colour on white and the one that stands for it on a dark ground.
type tone struct{ light, dark color.RGBA }

func rgb(x uint32) color.RGBA { return color.RGBA{uint8(x >> 16), uint8(x >> 8), uint8(x), 0xff} }

// The tones of everything that is not data. None is black, which an SVG leaves
// out as the default: each has to be found again by its number.
var (
	ink   color.Color = rgb(0x1f2328)
	muted color.Color = rgb(0x6e7781)
	faint color.Color = rgb(0xe3e6e9)
	shade color.Color = rgb(0xdbe5ee)
	paper color.Color = rgb(0xfefefe)
)

// palette is Okabe and Ito's (2008), which colour-blind readers can tell apart,
// without yellow, which is too pale for lines.
var palette = []color.Color{
	rgb(0x0072b2), rgb(0xe69f00), rgb(0x009e73), rgb(0xcc79a7), rgb(0xd55e00), rgb(0x56b4e9), rgb(0x444444),
}

func colour(i int) color.Color { return palette[i%len(palette)] }

// tones maps every colour to that on a dark ground.
var tones = []tone{
	{rgb(0x1f2328), rgb(0xe6e9ec)}, {rgb(0x6e7781), rgb(0x9aa4ae)}, {rgb(0xe3e6e9), rgb(0x313841)},
	{rgb(0xdbe5ee), rgb(0x2b3b4b)}, {rgb(0xfefefe), rgb(0x1b2027)},
	{rgb(0x0072b2), rgb(0x4fa8e0)}, {rgb(0xe69f00), rgb(0xf2b544)}, {rgb(0x009e73), rgb(0x33c79b)}, {rgb(0xcc79a7), rgb(0xe49bc5)},
	{rgb(0xd55e00), rgb(0xff8b4d)}, {rgb(0x56b4e9), rgb(0xa3d8ff)}, {rgb(0x444444), rgb(0xc3c8ce)},
}

func hex(c color.RGBA) string { return fmt.Sprintf("#%02X%02X%02X", c.R, c.G, c.B) }

// scheme is the style sheet of a picture. Viewers that know no dark scheme, or
// no style sheets, draw the picture on white.
var scheme = func() string {
	var b strings.Builder
	b.WriteString(`text{font-family:"Liberation Sans",Arial,Helvetica,sans-serif!important}@media(prefers-color-scheme:dark){`)
	for _, t := range tones {
		for _, what := range []string{"fill", "stroke"} {
			fmt.Fprintf(&b, `[style*="%s:%s"]{%s:%s!important}`, what, hex(t.light), what, hex(t.dark))
		}
	}
	b.WriteString("}")
	return b.String()
}()

// finish writes a picture with its name, its description and its style sheet,
// at the width of whatever it is put into.
func finish(w io.Writer, c *vgsvg.Canvas, title, desc string) error {
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return err
	}
	text := b.Bytes()
	at := bytes.Index(text, []byte("<svg "))
	end := at + bytes.IndexByte(text[at:], '>')
	var head bytes.Buffer
	head.Write(text[:at])
	head.WriteString(`<svg role="img" `)
	head.Write(text[at+len("<svg ") : end+1])
	head.WriteString("\n<title>")
	xml.EscapeText(&head, []byte(title))
	head.WriteString("</title>\n<desc>")
	xml.EscapeText(&head, []byte(desc))
	head.WriteString("</desc>\n<style>" + scheme + "</style>")
	if _, err := w.Write(head.Bytes()); err != nil {
		return err
	}
	_, err := w.Write(text[end+1:])
	return err
}
