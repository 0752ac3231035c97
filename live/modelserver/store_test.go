package modelserver

import "testing"

// The least recently used goes when there are too many bytes; one alone may be
// as large as it likes.
func TestStoreForgets(t *testing.T) {
	s := newStore()
	s.put("a", 1, maxStoredBytes/2)
	s.put("b", 2, maxStoredBytes/2)
	s.put("b", 3, maxStoredBytes/2) // in its place, not beside it
	if v, ok := s.get("a"); !ok || v != 1 {
		t.Errorf("a is %v (%v)", v, ok)
	}
	s.put("c", 4, 1)
	if _, ok := s.get("b"); ok {
		t.Error("b is still there, and was used before a")
	}
	s.put("d", 5, 2*maxStoredBytes)
	if v, _ := s.get("d"); v != 5 || s.items.Len() != 1 || s.bytes != 2*maxStoredBytes {
		t.Errorf("d is %v beside %d others, %d bytes", v, s.items.Len()-1, s.bytes)
	}
	if !s.delete("d") || s.delete("d") || s.bytes != 0 {
		t.Errorf("%d bytes are left of nothing", s.bytes)
	}
}
