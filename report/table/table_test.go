package table

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
	"pgregory.net/rapid"

	_ "github.com/windtunnel/windtunnel/internal/nightly" // fewer checks by day
)

var columns = []Column{{Name: "request"}, {Name: "number", Kind: Whole}, {Name: "ttft_s", Kind: Decimal, Digits: 6}}

// Both formats have the same rows, with any values, in the order and with the types of the columns.
func TestFormsHaveTheSameRows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.Custom(func(t *rapid.T) []Value {
			row := []Value{Of(rapid.StringN(0, 20,
				40).Filter(func(s string) bool { return !bytes.ContainsRune([]byte(s), '\r') }).Draw(t, "text")), {},
				{}}
			if rapid.Bool().Draw(t, "number is given") {
				row[1] = Number(float64(rapid.IntRange(0, 1<<40).Draw(t, "number")))
			}
			if rapid.Bool().Draw(t, "time is given") {
				row[2] = Number(float64(rapid.IntRange(0, 1<<32).Draw(t, "microseconds")) / 1e6)
			}
			return row
		})
		rows := rapid.SliceOfN(value, 0, 50).Draw(t, "rows")
		var separated, columnar bytes.Buffer
		for _, w := range []Writer{CSV(&separated, columns), Parquet(&columnar, columns)} {
			for _, row := range rows {
				w.Write(row)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
		}
		want, err := csv.NewReader(&separated).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t, columnar.Bytes()); !cmp.Equal(got, want) {
			t.Fatal(cmp.Diff(got, want))
		}
	})
}

// read returns a Parquet file's cells in the form of comma-separated values.
func read(t interface{ Fatal(...any) }, file []byte) [][]string {
	f, err := parquet.OpenFile(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i, c := range f.Root().Columns() {
		if kind := []parquet.Kind{Text: parquet.ByteArray, Whole: parquet.Int64,
			Decimal: parquet.Double}[columns[i].Kind]; c.Type().Kind() != kind || !c.Optional() {
			t.Fatal(fmt.Sprintf("column %s is %v; expected an optional %v", c.Name(), c.Type(), kind))
		}
		names = append(names, c.Name())
	}
	out := [][]string{names}
	for _, group := range f.RowGroups() {
		in := group.Rows()
		for {
			var list [10]parquet.Row
			n, err := in.ReadRows(list[:])
			for _, row := range list[:n] {
				var cells []string
				for i, v := range row {
					switch {
					case v.IsNull():
						cells = append(cells, "")
					case columns[i].Kind == Text:
						cells = append(cells, string(v.ByteArray()))
					case columns[i].Kind == Whole:
						cells = append(cells, strconv.FormatInt(v.Int64(), 10))
					default:
						cells = append(cells, strconv.FormatFloat(v.Double(), 'f', 6, 64))
					}
				}
				out = append(out, cells)
			}
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// full accepts so many bytes, and then fails.
type full int

var errFull = errors.New("no space is left")

func (f *full) Write(b []byte) (int, error) {
	if len(b) > int(*f) {
		return 0, errFull
	}
	*f -= full(len(b))
	return len(b), nil
}

// A table that cannot be written reports it in Close.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(io.Writer, []Column) Writer{"csv": CSV, "parquet": Parquet} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			room := full(5000)
			w := begin(&room, columns)
			for i := range 3 * groupRows {
				w.Write([]Value{Of(strconv.Itoa(i)), Number(float64(i)), Number(math.Sqrt(float64(i)))})
			}
			if err := w.Close(); !errors.Is(err, errFull) {
				t.Errorf("found %v; expected %v", err, errFull)
			}
		})
	}
}
