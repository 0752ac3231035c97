// Package promql is as much of Prometheus as an autoscaler sees: the series that scrapes and recording rules bring,
// where they end, and queries over them, which Prometheus' own parser and engine read and evaluate. Subqueries, offsets
// and functions of the date are refused when a query is read: a run has neither past nor date.
package promql
