package web

// NewSmallBook returns a Book that keeps so many rows, and proportionally less of everything else.
func NewSmallBook(rows int) *Book {
	l, by := usual, usual.rows/rows
	l.rows, l.bytes, l.gauges, l.notices = rows, l.bytes/by, l.gauges/by, l.notices/by
	return newBook(l)
}
