package link

import "testing"

// A prompt's first blocks are found, and their writing is charged once, to the
// first other node that reads them.
func TestStore(t *testing.T) {
	var s Store
	if n, writer := s.Find([]uint64{1}, 0); n != 0 || writer != -1 {
		t.Errorf("an empty store has %d blocks by %d", n, writer)
	}
	s.Put([]uint64{1, 2, 3}, 5)
	s.Put([]uint64{2}, 6) // it was there
	for _, c := range []struct{ reader, n, writer int }{{5, 3, -1}, {7, 3, 5}, {8, 3, -1}} {
		if n, writer := s.Find([]uint64{1, 2, 3, 4, 1}, c.reader); n != c.n || writer != c.writer {
			t.Errorf("node %d finds %d by %d, expected %d by %d", c.reader, n, writer, c.n, c.writer)
		}
	}
}
