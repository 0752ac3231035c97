package xgboost

import (
	"math/bits"
	"slices"
)

// The rows of one question are much alike: the same request at several endpoints. So
// they go through a tree together, as a set that is divided where they differ.

// batchRows is the number of rows in a batch.
const batchRows = 64

// column is one column of a batch's rows: each different value in ascending order, and the rows with that value or a
// greater one.
type column struct {
	values  []float32
	from    []uint64 // rows whose value is at least this one; and 0 behind the last
	missing uint64
}

// columns sorts a batch. It finds a few different values by comparing each.
func (m *Model) columns(rows []float32, n int) []column {
	out := make([]column, m.Columns)
	room := make([]float32, 0, m.Columns*n)
	masks := make([]uint64, m.Columns*(n+1))
	for c := range out {
		x := &out[c]
		begin := len(room)
		for i := range n {
			if v := rows[i*m.Columns+c]; v != v {
				x.missing |= 1 << i
			} else if !slices.Contains(room[begin:], v) {
				room = append(room, v)
			}
		}
		x.values = room[begin:len(room):len(room)]
		slices.Sort(x.values)
		x.from, masks = masks[:len(x.values)+1], masks[len(x.values)+1:]
		for i := range n {
			for k, v := range x.values {
				if rows[i*m.Columns+c] >= v {
					x.from[k] |= 1 << i
				}
			}
		}
	}
	return out
}

// rights returns the rows that go right at a node.
func (m *Model) rights(n *node, x *column) (right uint64) {
	if n.kind&categorical != 0 {
		for k, v := range x.values {
			if m.right(n, v) {
				right |= x.from[k] &^ x.from[k+1]
			}
		}
	} else {
		k := 0
		for k < len(x.values) && x.values[k] < n.value {
			k++
		}
		right = x.from[k]
	}
	if n.kind&missingLeft == 0 {
		right |= x.missing
	}
	return right
}

// PredictAll predicts len(out) rows, which stand in rows one after the other.
func (m *Model) PredictAll(rows []float32, out []float32) {
	for len(out) > 0 {
		n := min(len(out), batchRows)
		m.batch(rows[:n*m.Columns], out[:n])
		rows, out = rows[n*m.Columns:], out[n:]
	}
}

func (m *Model) batch(rows, out []float32) {
	columns := m.columns(rows, len(out))
	all := ^uint64(0) >> (64 - len(out))
	for i := range out {
		out[i] = m.Base
	}
	type part struct {
		node int32
		rows uint64
	}
	var later [maxDepth + 1]part // one for each level at most
	for _, root := range m.roots {
		at, waiting := part{root, all}, 0
		for {
			n := &m.nodes[at.node]
			if n.kind&leaf == 0 {
				right := m.rights(n, &columns[n.column]) & at.rows
				left := at.rows &^ right
				switch {
				case right == 0:
					at.node = n.left
				case left == 0:
					at.node = n.left + 1
				default:
					later[waiting] = part{n.left + 1, right}
					waiting++
					at = part{n.left, left}
				}
				continue
			}
			for r := at.rows; r != 0; r &= r - 1 {
				out[bits.TrailingZeros64(r)] += n.value
			}
			if waiting == 0 {
				break
			}
			waiting--
			at = later[waiting]
		}
	}
}
