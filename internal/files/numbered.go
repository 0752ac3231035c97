package files

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Numbered returns the paths of the files of a directory whose names are a number between head and tail, in the order
// of the numbers.
func Numbered(dir, head, tail string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	numbers := map[string]int{}
	var names []string
	for _, e := range entries {
		middle, begins := strings.CutPrefix(e.Name(), head)
		middle, ends := strings.CutSuffix(middle, tail)
		if n, err := strconv.Atoi(middle); err == nil && begins && ends {
			name := filepath.Join(dir, e.Name())
			numbers[name], names = n, append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(numbers[a], numbers[b]), cmp.Compare(a, b))
	})
	return names, nil
}
