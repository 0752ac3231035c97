// Package xgboost evaluates gradient boosted trees as the XGBoost library
// writes them (Booster.save_model, JSON), bit for bit as the library does: the
// same comparisons of float32 numbers, the same order of additions.
package xgboost

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Limits of what a file may hold. Those of latency predictors are far below: two
// hundred trees of at most 127 nodes.
const (
	MaxBytes    = 64 << 20
	maxTrees    = 10_000
	maxNodes    = 1 << 21
	maxFeatures = 1 << 10
	maxCategory = 1 << 10
	maxDepth    = 64
)

// Model is a booster of trees for one number. It never changes, and may be used
// by several goroutines.
type Model struct {
	// Objective is the training objective, such as reg:squarederror.
	Objective string
	// Base is the initial value of each sum of leaves (base_score).
	Base float32
	// Features are the columns' names and Types their types (float, int, i, q or c
	// for categories); both are empty where the file has none.
	Features, Types []string
	// Columns is the number of columns.
	Columns int

	roots []int32
	nodes []node
	sets  [][]uint64 // of categories that go right
}

// node is a split, or a leaf: then left is the node itself, which value belongs
// to. The right child follows the left one.
type node struct {
	value  float32 // of a leaf; else the threshold, or the bits of an index into sets
	left   int32
	column int16
	kind   uint8
}

const (
	leaf uint8 = 1 << iota
	categorical
	missingLeft
)

// number is a whole number that the file has as text.
type number int

func (n *number) UnmarshalText(text []byte) error {
	v, err := strconv.ParseInt(string(text), 10, 32)
	*n = number(v)
	return err
}

type fileTree struct {
	Left        []int32   `json:"left_children"`
	Right       []int32   `json:"right_children"`
	Column      []int32   `json:"split_indices"`
	Condition   []float32 `json:"split_conditions"`
	DefaultLeft []uint8   `json:"default_left"`
	Type        []uint8   `json:"split_type"`
	Categories  []int32   `json:"categories"`
	Nodes       []int32   `json:"categories_nodes"`
	Segments    []int32   `json:"categories_segments"`
	Sizes       []int32   `json:"categories_sizes"`
}

type file struct {
	Learner struct {
		FeatureNames []string `json:"feature_names"`
		FeatureTypes []string `json:"feature_types"`
		Booster      struct {
			Name  string `json:"name"`
			Model struct {
				Trees []fileTree `json:"trees"`
				Info  []int32    `json:"tree_info"`
			} `json:"model"`
		} `json:"gradient_booster"`
		Param struct {
			BaseScore string `json:"base_score"`
			Features  number `json:"num_feature"`
			Classes   number `json:"num_class"`
			Targets   number `json:"num_target"`
		} `json:"learner_model_param"`
		Objective struct {
			Name string `json:"name"`
		} `json:"objective"`
	} `json:"learner"`
}

// objectives are the objectives whose prediction is the sum of leaves itself.
var objectives = []string{"reg:squarederror", "reg:quantileerror", "reg:absoluteerror", "reg:pseudohubererror"}

// Read reads a model. An error names the invalid field of the file.
func Read(text []byte) (*Model, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("xgboost: a model of %d bytes; expected at most %d", len(text), MaxBytes)
	}
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("xgboost: %w; expected a model that Booster.save_model wrote as JSON", err)
	}
	l := &f.Learner
	m := &Model{Objective: l.Objective.Name, Features: l.FeatureNames, Types: l.FeatureTypes,
		Columns: int(l.Param.Features)}
	trees := l.Booster.Model.Trees
	switch {
	case l.Booster.Name != "gbtree":
		return nil, fmt.Errorf("xgboost: learner.gradient_booster.name is %.40q; expected gbtree", l.Booster.Name)
	case !slices.Contains(objectives, m.Objective):
		return nil, fmt.Errorf("xgboost: learner.objective.name is %.40q; expected one of %s", m.Objective,
			strings.Join(objectives, ", "))
	case l.Param.Targets > 1 || l.Param.Classes > 1:
		return nil, errors.New("xgboost: learner.learner_model_param says several targets or classes; expected one " +
			"number")
	case m.Columns < 1 || m.Columns > maxFeatures:
		return nil, fmt.Errorf("xgboost: learner.learner_model_param.num_feature is %d; expected 1 to %d", m.Columns,
			maxFeatures)
	case len(m.Features) != 0 && len(m.Features) != m.Columns || len(m.Types) != 0 && len(m.Types) != m.Columns:
		return nil, fmt.Errorf("xgboost: %d feature_names and %d feature_types; expected %d of each", len(m.Features),
			len(m.Types), m.Columns)
	case len(trees) > maxTrees:
		return nil, fmt.Errorf("xgboost: %d trees; expected at most %d", len(trees), maxTrees)
	}
	var err error
	if m.Base, err = base(l.Param.BaseScore); err != nil {
		return nil, err
	}
	for i := range trees {
		if err := m.add(&trees[i]); err != nil {
			return nil, fmt.Errorf("xgboost: tree %d: %w", i, err)
		}
	}
	return m, nil
}

// base reads base_score: a number, or since 3.1 a list of one.
func base(text string) (float32, error) {
	v, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"), 32)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("xgboost: learner.learner_model_param.base_score is %.40q; expected one finite number",
			text)
	}
	return float32(v), nil
}

// add takes a tree, in the order in which it is walked.
func (m *Model) add(t *fileTree) error {
	n := len(t.Left)
	for name, length := range map[string]int{"right_children": len(t.Right), "split_indices": len(t.Column),
		"split_conditions": len(t.Condition), "default_left": len(t.DefaultLeft)} {
		if length != n {
			return fmt.Errorf("%d %s beside %d left_children; expected as many", length, name, n)
		}
	}
	switch {
	case n == 0:
		return errors.New("no nodes; expected a root")
	case len(t.Type) != n && len(t.Type) != 0:
		return fmt.Errorf("%d split_type beside %d left_children; expected as many", len(t.Type), n)
	case len(t.Segments) != len(t.Nodes) || len(t.Sizes) != len(t.Nodes):
		return errors.New("categories_nodes, categories_segments and categories_sizes have different lengths")
	case len(m.nodes)+n > maxNodes:
		return fmt.Errorf("more than %d nodes in all trees", maxNodes)
	}
	sets := map[int32]int32{}
	for i, of := range t.Nodes {
		set, err := t.set(i)
		if err != nil {
			return err
		}
		sets[of] = int32(len(m.sets))
		m.sets = append(m.sets, set)
	}
	type step struct{ from, to int32 }
	root := int32(len(m.nodes))
	m.roots = append(m.roots, root)
	m.nodes = append(m.nodes, node{})
	level, seen := []step{{0, root}}, 1
	for depth := 0; len(level) > 0; depth++ {
		if depth > maxDepth {
			return fmt.Errorf("deeper than %d levels", maxDepth)
		}
		var next []step
		for _, s := range level {
			x := node{value: t.Condition[s.from], left: s.to, kind: leaf}
			if left, right := t.Left[s.from], t.Right[s.from]; left != -1 || right != -1 {
				if seen += 2; seen > n || left < 1 || right < 1 || int(left) >= n || int(right) >= n {
					return fmt.Errorf("node %d has the children %d and %d; expected two nodes of %d that are nobody "+
						"else's", s.from, left, right, n)
				}
				x.left, x.kind = int32(len(m.nodes)), 0
				if c := t.Column[s.from]; c < 0 || int(c) >= m.Columns {
					return fmt.Errorf("node %d splits by column %d of %d", s.from, c, m.Columns)
				}
				x.column = int16(t.Column[s.from])
				if t.DefaultLeft[s.from] != 0 {
					x.kind |= missingLeft
				}
				if len(t.Type) > 0 && t.Type[s.from] != 0 {
					set, ok := sets[s.from]
					if !ok {
						return fmt.Errorf("node %d splits by categories and names none", s.from)
					}
					x.kind |= categorical
					x.value = math.Float32frombits(uint32(set))
				}
				m.nodes = append(m.nodes, node{}, node{})
				next = append(next, step{left, x.left}, step{right, x.left + 1})
			}
			if x.kind&categorical == 0 && x.value != x.value {
				return fmt.Errorf("node %d has no number as its split_conditions", s.from)
			}
			m.nodes[s.to] = x
		}
		level = next
	}
	return nil
}

// set returns one node's categories.
func (t *fileTree) set(i int) ([]uint64, error) {
	from, n := int(t.Segments[i]), int(t.Sizes[i])
	if from < 0 || n < 0 || from > len(t.Categories) || n > len(t.Categories)-from {
		return nil, fmt.Errorf("categories_segments and categories_sizes say %d categories from %d on, of %d", n, from,
			len(t.Categories))
	}
	var set []uint64
	for _, c := range t.Categories[from : from+n] {
		if c < 0 || c >= maxCategory {
			return nil, fmt.Errorf("category %d; expected 0 to %d", c, maxCategory-1)
		}
		for len(set) <= int(c)/64 {
			set = append(set, 0)
		}
		set[c/64] |= 1 << (c % 64)
	}
	return set, nil
}

// Trees returns how many there are.
func (m *Model) Trees() int { return len(m.roots) }

// right reports whether a category is in the node's set. What is no category of the
// model goes left.
func (m *Model) right(n *node, x float32) bool {
	set := m.sets[math.Float32bits(n.value)]
	if !(x >= 0 && x < float32(len(set)*64)) {
		return false
	}
	c := int(x)
	return set[c/64]>>(c%64)&1 != 0
}
