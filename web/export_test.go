package web

// NewSmallBook is a Book that keeps so many requests, and of all else as much less.
func NewSmallBook(rows int) *Book {
	l, by := usual, usual.rows/rows
	l.rows, l.bytes, l.gauges, l.notices = rows, l.bytes/by, l.gauges/by, l.notices/by
	return newBook(l)
}
