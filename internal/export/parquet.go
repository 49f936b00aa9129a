package export

import (
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode"

	"github.com/parquet-go/parquet-go"

	"github.com/ulisse-gp/ulisse/internal/report"
)

// parquetRows is the number of rows that are handed to the writer at once.
const parquetRows = 1024

// writeParquet writes one table: chain, iteration and draw, from 1, as
// posterior's draws_df has them (draw counts on over the chains), then lp__, if it
// is known, and the quantities.
func writeParquet(w io.Writer, src *Source) error {
	rec := src.Record
	q := report.Quantities(rec.Model, &rec.Data)
	options := []parquet.WriterOption{tableSchema(q, src.LogDensity != nil), parquet.CreatedBy("ulisse", rec.Origin.Version, "")}
	for _, a := range append(common(src), Provenance(rec)...) {
		options = append(options, parquet.KeyValueMetadata(a.Name, fmt.Sprint(a.Value)))
	}
	pw := parquet.NewWriter(w, options...)
	rows := make([]parquet.Row, 0, parquetRows)
	flush := func() error {
		_, err := pw.WriteRows(rows)
		rows = rows[:0]
		return err
	}
	draw := 0
	for c, ch := range rec.Run.Chains {
		for t, psi := range ch.Draws {
			draw++
			row := parquet.Row{parquet.Int32Value(int32(c+1)).Level(0, 0, 0), parquet.Int32Value(int32(t+1)).Level(0, 0, 1), parquet.Int32Value(int32(draw)).Level(0, 0, 2)}
			if lp := src.LogDensity; lp != nil {
				row = append(row, parquet.DoubleValue(lp[c][t]).Level(0, 0, len(row)))
			}
			for _, x := range q {
				row = append(row, parquet.DoubleValue(x.Of(psi)).Level(0, 0, len(row)))
			}
			if rows = append(rows, row); len(rows) == parquetRows {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	return pw.Close()
}

// column returns the name of a column: that of the quantity, unless the name of its input holds what the
// tags of a schema cannot; then it is by number, tau[3].
func column(x report.Quantity) string {
	if !strings.ContainsFunc(x.Name, func(r rune) bool { return strings.ContainsRune(",\"`\\", r) || unicode.IsControl(r) }) {
		return x.Name
	}
	base, _, _ := strings.Cut(x.Name, "[")
	return base + "[" + x.Stan[strings.LastIndex(x.Stan, ".")+1:] + "]"
}

// tableSchema makes the schema by way of a struct, whose fields have an order.
func tableSchema(q []report.Quantity, density bool) *parquet.Schema {
	field := func(i int, name string, like any, options string) reflect.StructField {
		return reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: reflect.TypeOf(like), Tag: reflect.StructTag(fmt.Sprintf(`parquet:"%s%s"`, name, options))}
	}
	var fields []reflect.StructField
	for i, name := range []string{"chain", "iteration", "draw"} {
		fields = append(fields, field(i, name, int32(0), ",delta"))
	}
	if density {
		fields = append(fields, field(len(fields), "lp__", float64(0), ""))
	}
	for _, x := range q {
		fields = append(fields, field(len(fields), column(x), float64(0), ""))
	}
	return parquet.NewSchema("draws", parquet.SchemaOf(reflect.New(reflect.StructOf(fields)).Interface()))
}
