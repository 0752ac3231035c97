// Package table writes rows of typed values as comma-separated values or as Parquet, each row as it comes.
package table

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"reflect"
	"strconv"

	"github.com/parquet-go/parquet-go"
)

// Kind is the type of a column's values.
type Kind uint8

// The kinds.
const (
	Text Kind = iota
	Whole
	Decimal
)

// Exact are the Digits of a Decimal that is not rounded.
const Exact = -1

// Column is one of a table's.
type Column struct {
	Name string
	Kind Kind
	// Digits are the decimals of a Decimal, or Exact.
	Digits int
}

// Value is a cell of a row. The zero Value is an empty cell, null in Parquet.
type Value struct {
	text   string
	number float64
	given  bool
}

// Of returns a Text; "" is an empty cell.
func Of(text string) Value { return Value{text: text, given: text != ""} }

// Number returns a Whole or a Decimal.
func Number(v float64) Value { return Value{number: v, given: true} }

// Writer writes a table. A row has as many values as there are columns. After an error, Write does nothing, and Close
// returns the error.
type Writer interface {
	Write(row []Value)
	Close() error
}

// CSV returns a writer of comma-separated values (RFC 4180), and writes the columns' names.
func CSV(to io.Writer, columns []Column) Writer {
	x := &separated{out: csv.NewWriter(to), columns: columns, cells: make([]string, len(columns))}
	for i := range columns {
		x.cells[i] = columns[i].Name
	}
	x.err = x.out.Write(x.cells)
	return x
}

type separated struct {
	out     *csv.Writer
	columns []Column
	cells   []string
	err     error
}

func (x *separated) Write(row []Value) {
	if x.err != nil {
		return
	}
	for i, v := range row {
		switch c := &x.columns[i]; {
		case !v.given:
			x.cells[i] = ""
		case c.Kind == Text:
			x.cells[i] = v.text
		case c.Kind == Whole:
			x.cells[i] = strconv.FormatInt(int64(v.number), 10)
		default:
			x.cells[i] = strconv.FormatFloat(v.number, 'f', c.Digits, 64)
		}
	}
	x.err = x.out.Write(x.cells)
}

func (x *separated) Close() error {
	if x.out.Flush(); x.err != nil {
		return x.err
	}
	return x.out.Error()
}

// groupRows bounds the rows of a row group, which is in memory until it is whole.
const groupRows = 1 << 16

// Parquet returns a writer of a Parquet file with columns of these names in order, all optional: strings, int64 and
// double, compressed by Zstandard. A file without Close cannot be read.
func Parquet(to io.Writer, columns []Column) Writer {
	types := []reflect.Type{Text: reflect.TypeFor[string](), Whole: reflect.TypeFor[int64](),
		Decimal: reflect.TypeFor[float64]()}
	fields := make([]reflect.StructField, len(columns))
	for i, c := range columns {
		fields[i] = reflect.StructField{Name: "Column" + strconv.Itoa(i), Type: types[c.Kind],
			Tag: reflect.StructTag(fmt.Sprintf(`parquet:"%s,optional"`, c.Name))}
	}
	schema := parquet.SchemaOf(reflect.New(reflect.StructOf(fields)).Interface())
	return &columnar{columns: columns, row: make(parquet.Row, len(columns)),
		out: parquet.NewGenericWriter[any](to, schema, parquet.Compression(&parquet.Zstd),
			parquet.MaxRowsPerRowGroup(groupRows))}
}

type columnar struct {
	out     *parquet.GenericWriter[any]
	columns []Column
	row     parquet.Row
	err     error
}

func (x *columnar) Write(row []Value) {
	if x.err != nil {
		return
	}
	for i, v := range row {
		cell, given := parquet.NullValue(), 0
		if v.given {
			given = 1
			switch c := &x.columns[i]; {
			case c.Kind == Text:
				cell = parquet.ByteArrayValue([]byte(v.text))
			case c.Kind == Whole:
				cell = parquet.Int64Value(int64(v.number))
			case c.Digits == Exact:
				cell = parquet.DoubleValue(v.number)
			default:
				digits := math.Pow10(c.Digits)
				cell = parquet.DoubleValue(math.Round(v.number*digits) / digits)
			}
		}
		x.row[i] = cell.Level(0, given, i)
	}
	_, x.err = x.out.WriteRows([]parquet.Row{x.row})
}

func (x *columnar) Close() error {
	if x.err != nil {
		return x.err
	}
	return x.out.Close()
}
