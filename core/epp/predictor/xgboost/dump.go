package xgboost

import "math"

// Dumped is a node as Booster.get_dump writes it, with the nodes below it.
type Dumped struct {
	NodeID    int       `json:"nodeid"`
	Depth     *int      `json:"depth,omitempty"`
	Split     string    `json:"split,omitempty"`
	Condition any       `json:"split_condition,omitempty"`
	Yes       *int      `json:"yes,omitempty"`
	No        *int      `json:"no,omitempty"`
	Missing   *int      `json:"missing,omitempty"`
	Children  []*Dumped `json:"children,omitempty"`
	Leaf      *float32  `json:"leaf,omitempty"`
}

// Dump returns the trees as Booster.get_dump writes them. Their nodes are numbered level
// by level, as the library numbers those that it never pruned. Base is not in it.
func (m *Model) Dump() []*Dumped {
	out := make([]*Dumped, 0, len(m.roots))
	for _, root := range m.roots {
		out = append(out, m.dump(root, root, 0))
	}
	return out
}

func (m *Model) dump(i, root int32, depth int) *Dumped {
	n := &m.nodes[i]
	d := &Dumped{NodeID: int(i - root)}
	if n.kind&leaf != 0 {
		d.Leaf = new(n.value)
		return d
	}
	left, right := int(n.left-root), int(n.left-root)+1
	d.Depth, d.Yes, d.No, d.Missing = &depth, &left, &right, &right
	if n.kind&missingLeft != 0 {
		d.Missing = &left
	}
	if d.Condition = n.value; n.kind&categorical != 0 { // what is in the list goes right, and is called yes
		d.Yes, d.No = d.No, d.Yes
		list := []int{}
		for k, bits := range m.sets[math.Float32bits(n.value)] {
			for b := range 64 {
				if bits>>b&1 != 0 {
					list = append(list, 64*k+b)
				}
			}
		}
		d.Condition = list
	}
	if len(m.Features) > 0 {
		d.Split = m.Features[n.column]
	}
	d.Children = []*Dumped{m.dump(n.left, root, depth+1), m.dump(n.left+1, root, depth+1)}
	return d
}

// Importances is for each column the share of the splits that are by it.
func (m *Model) Importances() []float64 {
	out := make([]float64, m.Columns)
	all := 0.0
	for i := range m.nodes {
		if n := &m.nodes[i]; n.kind&leaf == 0 {
			out[n.column]++
			all++
		}
	}
	for i := range out {
		out[i] /= math.Max(1, all)
	}
	return out
}
