package dropin

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The datasets of llm-d-inference-sim are SQLite databases with one table of answers. A database engine would make the
// binary several times as large, so this file reads the format itself: the pages of one table, in order, and one column
// of each row (https://www.sqlite.org/fileformat2.html). It does not read indexes, a WAL, or text in encodings other
// than UTF-8.

const sqliteMagic = "SQLite format 3\x00"

// defaultTable is the table in which llm-d-inference-sim keeps its answers.
const defaultTable = "llmd"

var errSQLite = errors.New("the database is damaged")

type sqliteFile struct {
	raw    []byte
	page   int // bytes in a page
	usable int // bytes of a page that hold data
	budget int // pages that may still be visited, because a damaged file may contain cycles
}

func openSQLite(raw []byte) (*sqliteFile, error) {
	if len(raw) < 512 || string(raw[:16]) != sqliteMagic {
		return nil, errors.New("not an SQLite database")
	}
	size := int(binary.BigEndian.Uint16(raw[16:]))
	if size == 1 {
		size = 65536
	}
	usable := size - int(raw[20])
	switch {
	case size < 512 || size&(size-1) != 0 || usable < 480 || len(raw) < size:
		return nil, errSQLite
	case binary.BigEndian.Uint32(raw[56:]) > 1:
		return nil, errors.New("the database's texts are not UTF-8: convert it with sqlite3 old.db .dump | sqlite3 " +
			"new.db")
	}
	return &sqliteFile{raw: raw, page: size, usable: usable, budget: 2*(len(raw)/size) + 16}, nil
}

// at returns page number n, counted from 1, and the position of its header.
func (f *sqliteFile) at(n uint32) (page []byte, header int, err error) {
	if f.budget--; n == 0 || uint64(n)*uint64(f.page) > uint64(len(f.raw)) || f.budget < 0 {
		return nil, 0, errSQLite
	}
	page = f.raw[(int(n)-1)*f.page : int(n)*f.page][:f.usable]
	if n == 1 {
		return page, 100, nil
	}
	return page, 0, nil
}

const (
	interiorTable = 5
	leafTable     = 13
)

// rows calls each with every record of the table whose root is page n.
func (f *sqliteFile) rows(n uint32, depth int, each func(record []byte) error) error {
	page, h, err := f.at(n)
	if err != nil {
		return err
	}
	if depth > 32 || len(page) < h+12 {
		return errSQLite
	}
	kind, cells := page[h], int(binary.BigEndian.Uint16(page[h+3:]))
	pointers := h + 8
	if kind == interiorTable {
		pointers = h + 12
	}
	if len(page) < pointers+2*cells {
		return errSQLite
	}
	for i := range cells {
		at := int(binary.BigEndian.Uint16(page[pointers+2*i:]))
		if at+5 > len(page) {
			return errSQLite
		}
		switch kind {
		case interiorTable:
			if err := f.rows(binary.BigEndian.Uint32(page[at:]), depth+1, each); err != nil {
				return err
			}
		case leafTable:
			record, err := f.record(page[at:])
			if err != nil {
				return err
			}
			if err := each(record); err != nil {
				return err
			}
		default:
			return errSQLite
		}
	}
	if kind == interiorTable {
		return f.rows(binary.BigEndian.Uint32(page[h+8:]), depth+1, each)
	}
	return nil
}

// record returns the payload of a leaf cell, joined from its overflow pages.
func (f *sqliteFile) record(cell []byte) ([]byte, error) {
	size, n := varint(cell)
	if n == 0 || size > maxDatasetFile {
		return nil, errSQLite
	}
	cell = cell[n:]
	if _, n = varint(cell); n == 0 { // the row's id
		return nil, errSQLite
	}
	cell = cell[n:]
	most, least := f.usable-35, (f.usable-12)*32/255-23
	here := int(size)
	if here > most {
		if here = least + (int(size)-least)%(f.usable-4); here > most {
			here = least
		}
	}
	if here > len(cell) {
		return nil, errSQLite
	}
	if here == int(size) {
		return cell[:here], nil
	}
	if len(cell) < here+4 {
		return nil, errSQLite
	}
	out := slices.Clone(cell[:here])
	for next := binary.BigEndian.Uint32(cell[here:]); len(out) < int(size); {
		page, _, err := f.at(next)
		if err != nil {
			return nil, err
		}
		next = binary.BigEndian.Uint32(page)
		out = append(out, page[4:min(len(page), 4+int(size)-len(out))]...)
	}
	return out, nil
}

// column returns value number n of a record, and its type as SQLite's number.
func column(record []byte, n int) (value []byte, kind uint64, err error) {
	headers, k := varint(record)
	if k == 0 || headers > uint64(len(record)) || headers < uint64(k) {
		return nil, 0, errSQLite
	}
	types, body := record[k:headers], record[headers:]
	for i := 0; len(types) > 0; i++ {
		kind, k := varint(types)
		if k == 0 {
			return nil, 0, errSQLite
		}
		types = types[k:]
		size := uint64(0)
		switch {
		case kind >= 12:
			size = (kind - 12) / 2
		case kind < 8:
			size = []uint64{0, 1, 2, 3, 4, 6, 8, 8}[kind]
		}
		if size > uint64(len(body)) {
			return nil, 0, errSQLite
		}
		if i == n {
			return body[:size], kind, nil
		}
		body = body[size:]
	}
	return nil, 0, errSQLite
}

// textOf returns value number n of a record if it is a text or a blob.
func textOf(record []byte, n int) (string, error) {
	v, kind, err := column(record, n)
	if err != nil || kind < 12 {
		return "", err
	}
	return string(v), nil
}

// varint reads SQLite's variable-length integer: big-endian, with a ninth byte of eight bits. It returns a length of 0
// for damaged data.
func varint(b []byte) (v uint64, n int) {
	for n < 9 && n < len(b) {
		c := b[n]
		n++
		if n == 9 {
			return v<<8 | uint64(c), n
		}
		v = v<<7 | uint64(c&0x7f)
		if c < 0x80 {
			return v, n
		}
	}
	return 0, 0
}

// sqliteAnswers passes the texts of a table's column gen_tokens to add.
func sqliteAnswers(raw []byte, table string, add func(string) error) error {
	f, err := openSQLite(raw)
	if err != nil {
		return err
	}
	table = cmp.Or(table, defaultTable)
	root, definition := uint32(0), ""
	var tables []string
	err = f.rows(1, 0, func(record []byte) error {
		kind, err := textOf(record, 0)
		if err != nil || kind != "table" {
			return err
		}
		name, err := textOf(record, 1)
		if err != nil {
			return err
		}
		if tables = append(tables, name); name != table {
			return nil
		}
		if definition, err = textOf(record, 4); err != nil {
			return err
		}
		root, err = rootPage(record)
		return err
	})
	if err != nil {
		return err
	}
	if root == 0 {
		return fmt.Errorf("no table %q in the database, there are %q; name one with --dataset-table-name", table,
			tables)
	}
	n := columnNumber(definition, "gen_tokens")
	if n < 0 {
		return fmt.Errorf("table %q has no column gen_tokens, expected %s", table,
			"id, prompt_hash, gen_tokens, n_gen_tokens")
	}
	return f.rows(root, 0, func(record []byte) error {
		tokens, err := textOf(record, n)
		if err != nil {
			return err
		}
		return add(spoken(tokens))
	})
}

// rootPage returns the column rootpage of a row of sqlite_schema.
func rootPage(record []byte) (uint32, error) {
	v, kind, err := column(record, 3)
	switch {
	case err != nil:
		return 0, err
	case kind == 9: // the constant 1 takes no bytes
		return 1, nil
	case kind < 1 || kind > 4:
		return 0, errSQLite
	}
	n := uint32(0)
	for _, c := range v {
		n = n<<8 | uint32(c)
	}
	return n, nil
}

// columnNumber returns a column's position in a table's definition, or -1.
func columnNumber(definition, name string) int {
	_, list, ok := strings.Cut(definition, "(")
	if !ok {
		return -1
	}
	depth, n, begin := 0, 0, 0
	for i := 0; i <= len(list); i++ {
		if i < len(list) {
			switch c := list[i]; {
			case c == '(':
				depth++
				continue
			case c == ')' && depth > 0:
				depth--
				continue
			case c != ',' && c != ')' || depth > 0:
				continue
			}
		}
		words := strings.Fields(list[begin:i])
		if len(words) > 0 && strings.Trim(words[0], "\"`[]") == name {
			return n
		}
		n, begin = n+1, i+1
	}
	return -1
}

// spoken returns the text of a row's tokens: {"Tokens":[…],"Strings":[…]}. The tokens belong to another model's
// tokenizer, so only their text counts.
func spoken(raw string) string {
	var t struct {
		Strings []string `json:"strings"`
	}
	if json.Unmarshal([]byte(raw), &t) != nil {
		return ""
	}
	return strings.Join(t.Strings, "")
}
